"""tokenizer.json files made to do harm: each is refused with a short message, when it is read or, where only a text can
show it, when a text is encoded; none crashes, hangs or takes memory out of proportion.
"""

import json
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest

from cutaway.errors import ModelFileError
from cutaway.tokenizer.huggingface import load_tokenizer_json, patterns
from cutaway.tokenizer.huggingface.load import Roles

LETTERS = {letter: token_id for token_id, letter in enumerate("ab ▁")}
HALF = "\ud800"
NESTED = {
    "normalizer": ("normalizers", {"type": "NFC"}),
    "pre_tokenizer": ("pretokenizers", {"type": "Digits"}),
    "decoder": ("decoders", {"type": "Fuse"}),
    "post_processor": ("processors", {"type": "ByteLevel"}),
}


def file(**parts: Any) -> str:
    """A small sound file with some parts in place of its own."""
    model = {"type": "BPE", "vocab": LETTERS, "merges": []}
    return json.dumps({"added_tokens": [], "decoder": {"type": "Fuse"}, "model": model} | parts)


def bpe(**fields: Any) -> dict[str, Any]:
    return {"type": "BPE", "vocab": LETTERS, "merges": []} | fields


def unigram(*pieces: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", -1.0], *pieces]}


def replace(old: dict[str, str], new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": old, "content": new}


def refused(text: str, roles: Roles | None = None) -> str:
    with pytest.raises(ModelFileError) as error:
        load_tokenizer_json(text, roles)
    message = str(error.value)
    assert len(message) < 1000
    assert message.isprintable()
    return message


def within(part: str, levels: int) -> Any:
    name, component = NESTED[part]
    for _ in range(levels):
        component = {"type": "Sequence", name: [component]}
    return component


@pytest.mark.parametrize("levels", [17, 100, 400])
@pytest.mark.parametrize("part", NESTED)
def test_components_within_components_without_end(part: str, levels: int) -> None:
    assert "at most 16 are read" in refused(file(**{part: within(part, levels)}))
    load_tokenizer_json(file(**{part: within(part, 8)}))


@pytest.mark.parametrize("levels", [400, 5_000])
def test_values_within_values_without_end(levels: int) -> None:
    for field in ('"normalizer": @', '"model": @', '"model": {"type": "BPE", "vocab": {}, "merges": [], "dropout": @}'):
        refused(f"{{{field.replace('@', '[' * levels + ']' * levels)}}}")


@pytest.mark.parametrize(
    "parts",
    [
        {"model": bpe(vocab={"a": 0, HALF: 1})},
        {"model": unigram((f"a{HALF}", -1.0))},
        {"added_tokens": [{"content": f"<{HALF}>", "id": 9}]},
        {"normalizer": {"type": "Prepend", "prepend": HALF}},
        {"normalizer": replace({"String": "a"}, HALF)},
        {"normalizer": replace({"Regex": HALF}, "a")},
        {"pre_tokenizer": {"type": "Metaspace", "replacement": HALF}},
        {"decoder": replace({"String": "a"}, HALF)},
        {"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": HALF}}]}},
    ],
)
def test_half_a_character_is_no_text(parts: dict[str, Any]) -> None:
    assert "surrogate" in refused(file(**parts))


@pytest.mark.parametrize(
    "parts",
    [
        {"model": bpe(unk_token=[])},
        {"model": bpe(unk_token={})},
        {"model": bpe(unk_token=3)},
        {"model": bpe(vocab={"a": True})},
        {"model": unigram(("a", 10**400))},
        {"model": unigram(("a", -1e308))},
        {"model": unigram(("a", "1"))},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "ä"}},
        {"pre_tokenizer": {"type": "Metaspace", "replacement": ""}},
        {"decoder": {"type": "Metaspace", "replacement": "▁▁"}},
        {"added_tokens": [{"content": "<s>", "id": 1000}, {"content": "<s>", "id": 5}]},
        {"added_tokens": [{"content": "<s>", "id": 10**30}, {"content": "<s>", "id": 5}]},
        {"model": bpe(merges=[[["a"] * 100_000]])},
        {"model": bpe(merges=["a " + "z" * 100_000])},
        {"model": bpe(vocab={"z" * 100_000: 0, "y" * 100_000: 0})},
        {"model": {"type": "B" * 100_000}},
        {"model": bpe(dropout=["x"] * 100_000)},
        {"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "a"}}] * 100_000}},
        {"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "z" * 100_000}}]}},
    ],
)
def test_wrong_values_are_refused_in_few_words(parts: dict[str, Any]) -> None:
    refused(file(**parts))


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        (file(model=bpe(vocab={"a": (1 << 24) - 2})), Roles()),
        (file(added_tokens=[{"content": "<s>", "id": (1 << 24) - 2}]), Roles()),
        (file(), Roles(vocab_size=(1 << 24) - 2)),
    ],
)
def test_a_small_file_makes_no_large_vocabulary(text: str, roles: Roles) -> None:
    tracemalloc.start()
    try:
        assert "without a token" in refused(text, roles)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "pattern",
    [
        "((a{1000}){1000}){1000}",
        "(a{1,1000}){,1000}",
        "(" * 5000 + "a" + ")" * 5000,
        "a" * 20_001,
        "(?R)",
        "(a|(?1)b)+",
        r"(?<x>a|(?&x))+",
        "(?:aaaaaaaab){e<=9}",
        "a{99999999999999999999}",
    ],
)
def test_patterns_that_take_too_much_to_compile_or_are_of_another_syntax(pattern: str) -> None:
    assert "pattern is" in refused(file(normalizer=replace({"Regex": pattern}, "x")))
    split = {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": pattern}}
    assert "pattern is" in refused(file(pre_tokenizer=split))


@pytest.mark.parametrize("pattern", [r"\p{L}{1,3}", "(?:a|b){2,}", "(?i:'s|'t)", "(?<!a)b", "(?>a)+"])
def test_sound_patterns_are_not_refused(pattern: str) -> None:
    load_tokenizer_json(file(normalizer=replace({"Regex": pattern}, "b"))).encode("aab")


@pytest.mark.parametrize("pattern", ["(a|aa)+!", "(a|aa)+(?=!)"])
def test_a_pattern_that_would_never_end_is_given_up(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "SECONDS", 0.1)
    split = {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": pattern}}
    for part in ({"normalizer": replace({"Regex": pattern}, "b")}, {"pre_tokenizer": split}):
        tokenizer = load_tokenizer_json(file(**part))
        assert tokenizer.encode("ab") == [0, 1]
        with pytest.raises(ModelFileError, match=r"too much time or memory on a text of 200 characters"):
            tokenizer.encode("a" * 200)


def test_replacements_of_replacements_do_not_grow_without_end() -> None:
    letters = "abcdefghijk"
    chain = [replace({"String": old}, new * 64) for old, new in pairwise(letters)]
    grown = load_tokenizer_json(file(normalizer={"type": "Sequence", "normalizers": chain}))
    with pytest.raises(ModelFileError, match="the normalizer of tokenizer\\.json makes a text longer"):
        grown.encode("a" * 100)
    nested = {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [each]} for each in chain]}
    with pytest.raises(ModelFileError, match="longer"):
        load_tokenizer_json(file(normalizer=nested)).encode("a" * 100)
    with pytest.raises(ModelFileError, match="the decoder of tokenizer\\.json makes a text longer"):
        load_tokenizer_json(file(decoder={"type": "Sequence", "decoders": chain})).decode([0])
    for part in ("normalizer", "decoder"):
        assert "at most 64" in refused(file(**{part: replace({"String": "a"}, "b" * 65)}))
    assert "at most 64" in refused(file(normalizer={"type": "Prepend", "prepend": "b" * 65}))


def test_a_long_piece_of_a_unigram_vocabulary_is_refused() -> None:
    """At each place of a text all of it would be compared: time would grow with the product of both lengths."""
    assert "at most 256" in refused(file(model=unigram(("a" * 257, -1.0))))
    assert load_tokenizer_json(file(model=unigram(("a" * 256, -1.0), ("a", -2.0)))).encode("a" * 257) == [2, 1]
