"""Unigram: the best of all segmentations, by trying them all; unknown characters; spaces; what it costs; and the
`sentencepiece` package.
"""

import io
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
import sentencepiece
import tokenizers
from charsmaps import NMT_LIKE, charsmap
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_cases import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, spm_metadata
from tokenizer_texts import LONG, random_text
from tokenizers import decoders, models

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.tokenizer import Tokenizer, load_tokenizer
from cutaway.tokenizer.huggingface import load_tokenizer_json
from cutaway.tokenizer.unigram import Trie, Unigram, make_trie, to_float64


def segmentations(text: str) -> Iterator[list[str]]:
    """All ways to cut a text."""
    if not text:
        yield []
    for n in range(1, len(text) + 1):
        for rest in segmentations(text[n:]):
            yield [text[:n], *rest]


def best_segmentation(text: str, scores: dict[str, int], unknown: int) -> list[str]:
    """The definition: the highest sum; of several, the one whose last piece is longest, then the one before, and so on.

    A character is unknown where no piece is this character.
    """
    candidates = [parts for parts in segmentations(text) if all(part in scores or len(part) == 1 for part in parts)]
    return max(
        candidates,
        key=lambda parts: (sum(scores.get(part, unknown) for part in parts), [len(part) for part in reversed(parts)]),
    )


# Whole numbers, so that sums are equal if they are; few of them, so that they are.
vocabularies = st.dictionaries(st.text("ab▁", min_size=1, max_size=4), st.integers(-3, 0), max_size=12)


@given(vocabularies, st.text("abc▁", max_size=9))
def test_equal_to_the_best_of_all_segmentations(scores: dict[str, int], text: str) -> None:
    unknown = min(scores.values(), default=0) - 10
    trie = make_trie((piece, float(score), i) for i, (piece, score) in enumerate(scores.items()))
    model = Unigram(trie, float(unknown), rounded=to_float64, fallback=lambda _: [-1])
    found = [text[start:stop] for start, stop, _ in model.segments(text)]
    assert found == best_segmentation(text, scores, unknown)
    expected: list[int] = []
    for part in found:
        token_id = [*scores].index(part) if part in scores else -1
        if token_id >= 0 or expected[-1:] != [-1]:  # neighbours that are unknown are one
            expected.append(token_id)
    assert model(text) == expected


class CountingNode(dict[str, Any]):
    looks = 0

    def get(self, key: str, default: Any = None) -> Any:
        type(self).looks += 1
        return super().get(key, default)


def counting(node: Trie) -> Trie:
    children, piece = node
    return [CountingNode({key: counting(child) for key, child in children.items()}), piece]


@pytest.mark.parametrize("text", ["a", "ab", "x", "▁the"])
def test_twice_the_text_costs_twice_the_looks(text: str) -> None:
    pieces = ["a" * n for n in range(1, 17)] + ["ab", "ba", "▁", "▁the", "t", "h", "e"]
    trie = counting(make_trie((piece, -float(len(piece)), i) for i, piece in enumerate(pieces)))
    model = Unigram(trie, -100.0, rounded=to_float64, fallback=lambda _: [0])

    def looks(n: int) -> int:
        CountingNode.looks = 0
        model(text * n)
        return CountingNode.looks

    once, twice = looks(1_000), looks(2_000)
    assert once >= 1_000
    assert twice <= 2.01 * once


def t5(pieces: dict[str, float], with_bytes: bool = True, **changes: Any) -> Tokenizer:
    special = {"<unk>": UNKNOWN, "<s>": CONTROL, "<x>": USER_DEFINED}
    changes = {"model": "t5", "unknown_token_id": 0} | changes
    changed = {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return load_tokenizer(spm_metadata(pieces, special, with_bytes) | changed)


SCORES = {
    "▁": -2.0,
    "a": -3.0,
    "b": -3.0,
    "▁ab": -2.5,
    "<": -4.0,
    "s": -4.0,
    ">": -4.0,
    "x": -4.0,
    "0": -4.0,
    "4": -4.0,
    "1": -4.0,
}


def pieces(tokenizer: Tokenizer, text: str, **options: Any) -> list[str]:
    return [tokenizer.piece(token_id) for token_id in tokenizer.encode(text, **options)]


def test_bytes_stand_for_what_is_no_piece() -> None:
    tokenizer = t5(SCORES)
    assert pieces(tokenizer, "ab🦙") == [" ab", "<0xF0>", "<0x9F>", "<0xA6>", "<0x99>"]
    assert tokenizer.decode(tokenizer.encode("ab🦙a")) == "ab🦙a"


def test_without_bytes_neighbours_are_one_unknown() -> None:
    tokenizer = t5(SCORES, with_bytes=False)
    assert tokenizer.encode("éçab") == [tokenizer.encode("a")[0], 0, *tokenizer.encode("xab")[2:]]
    with pytest.raises(InvalidRequestError, match="'é', for which this vocabulary has no token"):
        t5(SCORES, with_bytes=False, unknown_token_id=None).encode("aé")


def test_control_and_byte_pieces_are_never_made_of_text() -> None:
    tokenizer = t5(SCORES)
    for text in ("<s>", "<0x41>"):
        ids = tokenizer.encode(text)
        assert len(ids) > len(text) - 1
        assert tokenizer.decode(ids) == text
    assert tokenizer.encode("<s>", parse_special=True) == [1]
    assert tokenizer.encode("a<x>")[-1] == 2


def test_an_unknown_character_costs_ten_more_than_the_worst_piece() -> None:
    """xa b at -35.5 against an unknown x and ab, at -36 then. With a penalty of 9 it would be at -35."""
    scores = {"xa": -25.0, "a": -20.0, "b": -10.5, "ab": -1.0}
    assert pieces(t5(scores, add_space_prefix=False), "xab") == ["xa", "b"]
    unk = {"<unk>": 0.0, **scores}
    built = tokenizers.Tokenizer(models.Unigram([*unk.items()], unk_id=0))
    built.decoder = decoders.Fuse()
    assert built.encode("xab").tokens == ["xa", "b"]
    assert load_tokenizer_json(built.to_str()).encode("xab") == built.encode("xab").ids


def test_spaces_as_the_file_says() -> None:
    assert pieces(t5(SCORES), "  ab") == [" ", " ", " ab"]
    assert pieces(t5(SCORES, remove_extra_whitespaces=True), "  ab   ab ") == [" ab", " ab"]
    assert pieces(t5(SCORES, add_space_prefix=False), "ab") == ["a", "b"]
    assert t5(SCORES, remove_extra_whitespaces=True).encode("   ") == []


def test_the_character_map_replaces_the_longest_match() -> None:
    tokenizer = t5(SCORES, precompiled_charsmap=[*charsmap({"A": "a", "AB": "b", "ﬁ": "x", "\n": " ", "é": ""})])
    assert pieces(tokenizer, "ABA") == [" ", "b", "a"]
    assert pieces(tokenizer, "ﬁ\nabé") == [" ", "x", " ab"]
    signed = [byte - 256 if byte > 127 else byte for byte in charsmap(NMT_LIKE)]
    assert pieces(t5(SCORES, precompiled_charsmap=signed), "\u3000ab") == [" ", " ab"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, "tokenizer.ggml.scores is missing"),
        ({"precompiled_charsmap": [1, 2]}, "character map has 2 bytes"),
        ({"precompiled_charsmap": [8, 0, 0, 0, 0, 0, 0, 0]}, "a trie of 8"),
        ({"precompiled_charsmap": [300]}, "no byte"),
    ],
)
def test_bad_files_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        t5(SCORES, **changes)


@given(st.binary(max_size=80), st.text(max_size=10))
def test_a_damaged_character_map_ends_in_an_error_or_a_text(data: bytes, text: str) -> None:
    size = len(data) // 4 * 4
    try:
        t5(SCORES, precompiled_charsmap=[*size.to_bytes(4, "little"), *data]).encode(text)
    except ModelFileError:
        assert size == 0


# -- against sentencepiece


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protocol buffer: (number, integer or bytes)."""
    i = 0

    def varint() -> int:
        nonlocal i
        value = shift = 0
        while True:
            byte = message[i]
            i += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while i < len(message):
        number, kind = divmod(varint(), 8)
        n = {0: 0, 1: 8, 5: 4}.get(kind)
        if n == 0:
            yield number, varint()
        else:
            n = varint() if n is None else n
            yield number, message[i : i + n]
            i += n


def metadata_of(processor: Any, kind: str) -> dict[str, Any]:
    """A trained model as GGUF metadata."""
    specification = dict(fields(dict(fields(processor.serialized_model_proto()))[3]))
    size = processor.get_piece_size()
    kinds = {processor.is_unknown: UNKNOWN, processor.is_control: CONTROL, processor.is_byte: BYTE}
    return {
        "tokenizer.ggml.model": kind,
        "tokenizer.ggml.tokens": [processor.id_to_piece(i) for i in range(size)],
        "tokenizer.ggml.scores": [processor.get_score(i) for i in range(size)],
        "tokenizer.ggml.token_type": [next((k for f, k in kinds.items() if f(i)), NORMAL) for i in range(size)],
        "tokenizer.ggml.unknown_token_id": processor.unk_id(),
        "tokenizer.ggml.precompiled_charsmap": [*specification.get(2, b"")],
        "tokenizer.ggml.add_space_prefix": bool(specification.get(3, 1)),
        "tokenizer.ggml.remove_extra_whitespaces": bool(specification.get(4, 1)),
        "tokenizer.ggml.add_bos_token": False,
    }


@pytest.mark.parametrize("model", ["unigram", "bpe"])
@pytest.mark.parametrize(
    "options",
    [{"byte_fallback": True}, {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}, {}],
    ids=["bytes", "identity", "nmt_nfkc"],
)
def test_same_ids_as_sentencepiece(model: str, options: dict[str, Any]) -> None:
    noise = random.Random(11)
    lines = [random_text(noise).replace("\n", " ") for _ in range(300)]
    lines += ["the cat sat on the mat, and then on the hat " * 3] * 50
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=trained,
        vocab_size=3_000,
        model_type=model,
        character_coverage=0.98,
        minloglevel=2,
        hard_vocab_limit=False,
        num_threads=1,
        **options,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    ours = load_tokenizer(metadata_of(processor, {"unigram": "t5", "bpe": "llama"}[model]))
    for _ in range(100_000 if LONG in os.environ else 1_000):
        text = random_text(noise).replace("\0", "")
        assert ours.encode(text) == processor.encode(text), (text, processor.encode(text, out_type=str))
