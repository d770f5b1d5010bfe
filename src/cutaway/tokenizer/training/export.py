"""A learnt vocabulary as a ``tokenizer.json``, which the ``tokenizers`` package and Cutaway read alike.

In: a vocabulary, how its text is cut, and texts for control tokens. Out: the file's content, and the file.
"""

import errno
import json
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import Any

from cutaway.errors import CapacityError, InvalidRequestError
from cutaway.hub.whole_file import write_whole
from cutaway.tokenizer.byte_alphabet import BYTE_TO_CHARACTER
from cutaway.tokenizer.legal_text import check_legal
from cutaway.tokenizer.sentencepiece_text import SPACE
from cutaway.tokenizer.training.bpe_trainer import BPEVocabulary
from cutaway.tokenizer.training.unigram_trainer import UnigramVocabulary
from cutaway.tokenizer.vocabulary import LONGEST_SPECIAL

UNKNOWN = "<unk>"
BYTE_PENALTY = 1000.0  # below the lowest score: a spelled-out "<0x41>" must not be the best way to write this text
SCORE_STEP = 2.0**-10
"""Scores are written as multiples of this. Many ways to cut a run of one character have the same sum, and which of them
is taken must not hang on a last bit: numbers of so few digits are read exactly by every reader of JSON (the
``tokenizers`` package takes a neighbour of some that have 16), and sums of them are exact, in whatever order they are
added. Probabilities change by less than a twentieth of a percent.
"""
UNIGRAM_PATTERNS = (r"[\r\n]+", f"{SPACE}[^{SPACE}]*")  # line ends; then words with the space before them
BYTE_SPELLINGS = tuple(f"<0x{byte:02X}>" for byte in range(256))
UNIGRAM_OVERHEAD = 257  # tokens of a Unigram vocabulary that are no pieces: the unknown one and the bytes


def bpe_json(vocabulary: BPEVocabulary, patterns: Sequence[str], special: Sequence[str]) -> dict[str, Any]:
    """A byte-level BPE vocabulary: ids 0 … 255 are the bytes, then the products of merges, then control tokens.

    Args:
        patterns: cut the text, one after the other.

    Raises:
        InvalidRequestError: a control token is a piece of the vocabulary.
    """
    spelled = [*map(spell, vocabulary.pieces)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    steps = [
        {"type": "Split", "pattern": {"Regex": each}, "behavior": "Isolated", "invert": False} for each in patterns
    ]
    vocab = {piece: token_id for token_id, piece in enumerate(spelled)}
    return _file(
        added=_added(special, len(vocab), vocab.keys()),
        normalizer=None,
        pre_tokenizer={"type": "Sequence", "pretokenizers": [*steps, byte_level]},
        decoder=byte_level,
        model={
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [f"{spelled[left]} {spelled[right]}" for left, right in vocabulary.merges],
        },
    )


def spell(piece: bytes) -> str:
    """A byte-level piece as the file writes it."""
    return "".join([BYTE_TO_CHARACTER[byte] for byte in piece])


def unigram_json(vocabulary: UnigramVocabulary, special: Sequence[str]) -> dict[str, Any]:
    """A Unigram vocabulary: id 0 is the unknown token, then control tokens, the bytes, and the pieces by probability.
    A character without a piece is written by its bytes, so that any text can be encoded.

    Raises:
        InvalidRequestError: a control token is a piece of the vocabulary.
    """
    pieces = [(text, round(score / SCORE_STEP) * SCORE_STEP) for text, score in vocabulary.pieces]
    lowest = min((score for _, score in pieces), default=0.0)
    control = [UNKNOWN, *special]
    vocab = [(text, 0.0) for text in control]
    vocab += [(spelling, lowest - BYTE_PENALTY) for spelling in BYTE_SPELLINGS]
    added = _added(control, 0, {*dict(vocabulary.pieces), *BYTE_SPELLINGS})
    steps = [
        {"type": "Split", "pattern": {"Regex": each}, "behavior": "Isolated", "invert": False}
        for each in UNIGRAM_PATTERNS
    ]
    return _file(
        added=added,
        normalizer={"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        pre_tokenizer={"type": "Sequence", "pretokenizers": steps},
        decoder={
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        model={"type": "Unigram", "unk_id": 0, "vocab": [*vocab, *pieces], "byte_fallback": True},
    )


def write_json(content: dict[str, Any], path: Path) -> None:
    """Write the file whole, or leave what was there. Of a link, what it points to is written.

    Raises:
        InvalidRequestError: the folder can't be written to, or something is there that is no file.
        CapacityError: the disk is full.
    """
    try:
        write_whole(path, json.dumps(content, ensure_ascii=False, indent=1).encode(), sync=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CapacityError(f"{path} can't be written ({error.strerror}). Make room on the disk.") from error
        raise InvalidRequestError(
            f"{path} can't be written ({error.strerror}). Choose another --out.", "out"
        ) from error


def check_control(texts: Sequence[str]) -> None:
    """Each control token is there once, and is text that readers of the vocabulary take.

    Raises:
        InvalidRequestError: one is empty, doubled, too long or no text.
    """
    for i, text in enumerate(texts):
        check_legal(text, "special")
        if len(text) > LONGEST_SPECIAL:
            raise InvalidRequestError(
                f"a control token has {len(text)} characters; it must have at most {LONGEST_SPECIAL}.", "special"
            )
        if not text or text in texts[:i]:
            fault = "given twice, or part of every such vocabulary" if text else "empty"
            raise InvalidRequestError(f"the control token {text!r} is {fault}; give each once.", "special")


def check_not_learnt(
    texts: Iterable[str], pieces: Set[str], fault: str = "the vocabulary learnt it as a piece of text"
) -> None:
    """No control token is a piece of text. Pieces stay pieces, so this can be told as soon as one is learnt.

    Args:
        pieces: as the file spells them.
        fault: how it came to be one.

    Raises:
        InvalidRequestError: one is.
    """
    for text in texts:
        if text in pieces:
            raise InvalidRequestError(
                f"{text!r} is given as a control token, but {fault}; choose a spelling that text doesn't have, as "
                "<|name|>.",
                "special",
            )


def _added(texts: Sequence[str], first_id: int, pieces: Set[str]) -> list[dict[str, Any]]:
    check_control(texts)
    check_not_learnt(texts, pieces)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [{"id": first_id + i, "content": text, **flags} for i, text in enumerate(texts)]


def _file(added: list[dict[str, Any]], **parts: Any) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": parts["normalizer"],
        "pre_tokenizer": parts["pre_tokenizer"],
        "post_processor": None,
        "decoder": parts["decoder"],
        "model": parts["model"],
    }
