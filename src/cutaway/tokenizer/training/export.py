"""A learnt vocabulary as a ``tokenizer.json``, which the ``tokenizers`` package and Cutaway read alike.

In: a vocabulary, how its text is cut, and texts for control tokens. Out: the file's content, and the file: written
under another name and renamed, so that it is there whole or not at all.
"""

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cutaway.errors import CapacityError, InvalidRequestError
from cutaway.tokenizer.byte_alphabet import BYTE_TO_CHARACTER
from cutaway.tokenizer.sentencepiece_text import SPACE
from cutaway.tokenizer.training.bpe_trainer import BPEVocabulary
from cutaway.tokenizer.training.unigram_trainer import UnigramVocabulary

UNKNOWN = "<unk>"
BYTE_PENALTY = 1000.0  # below the lowest score: a spelled-out "<0x41>" must not be the best way to write this text
UNIGRAM_PATTERNS = (r"[\r\n]+", f"{SPACE}[^{SPACE}]*")  # line ends; then words with the space before them
UNIGRAM_OVERHEAD = 257  # tokens of a Unigram vocabulary that are no pieces: the unknown one and the bytes


def bpe_json(vocabulary: BPEVocabulary, patterns: Sequence[str], special: Sequence[str]) -> dict[str, Any]:
    """A byte-level BPE vocabulary: ids 0 … 255 are the bytes, then the products of merges, then control tokens.

    Args:
        patterns: cut the text, one after the other.

    Raises:
        InvalidRequestError: a control token is a piece of the vocabulary.
    """
    spelled = ["".join([BYTE_TO_CHARACTER[byte] for byte in piece]) for piece in vocabulary.pieces]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    steps = [
        {"type": "Split", "pattern": {"Regex": each}, "behavior": "Isolated", "invert": False} for each in patterns
    ]
    vocab = {piece: token_id for token_id, piece in enumerate(spelled)}
    return _file(
        added=_added(special, len(vocab), vocab),
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


def unigram_json(vocabulary: UnigramVocabulary, special: Sequence[str]) -> dict[str, Any]:
    """A Unigram vocabulary: id 0 is the unknown token, then control tokens, the bytes, and the pieces by probability.
    A character without a piece is written by its bytes, so that any text can be encoded.

    Raises:
        InvalidRequestError: a control token is a piece of the vocabulary.
    """
    lowest = min((score for _, score in vocabulary.pieces), default=0.0)
    control = [UNKNOWN, *special]
    vocab = [(text, 0.0) for text in control]
    vocab += [(f"<0x{byte:02X}>", lowest - BYTE_PENALTY) for byte in range(256)]
    added = _added(control, 0, dict(vocabulary.pieces))
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
        model={"type": "Unigram", "unk_id": 0, "vocab": [*vocab, *vocabulary.pieces], "byte_fallback": True},
    )


def write_json(content: dict[str, Any], path: Path) -> None:
    """Write the file whole, or leave what was there.

    Raises:
        InvalidRequestError: the folder can't be written to.
        CapacityError: the disk is full.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            part.write_text(json.dumps(content, ensure_ascii=False, indent=1), "utf-8")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CapacityError(f"{path} can't be written ({error.strerror}). Make room on the disk.") from error
        raise InvalidRequestError(
            f"{path} can't be written ({error.strerror}). Choose another --out.", "out"
        ) from error


def _added(texts: Sequence[str], first_id: int, pieces: dict[str, Any]) -> list[dict[str, Any]]:
    if len(set(texts)) != len(texts) or "" in texts:
        raise InvalidRequestError("a control token is empty or given twice; give each once.", "special")
    for text in texts:
        if text in pieces:
            raise InvalidRequestError(
                f"{text!r} is given as a control token, but the vocabulary learnt it as a piece of text; choose "
                "another spelling, or leave it out of the corpus.",
                "special",
            )
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
