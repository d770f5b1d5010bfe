"""Each normalizer and pre-tokenizer of a tokenizer.json does what the `tokenizers` package does with it; what is not
supported is an error that names it.
"""

import base64
import json
from typing import Any

import pytest
import tokenizers
from charsmaps import NMT_LIKE, charsmap
from hypothesis import given, settings
from tokenizer_texts import in_every_unicode, texts
from tokenizers import normalizers, pre_tokenizers

from cutaway.errors import ModelFileError
from cutaway.tokenizer.huggingface.component import Component
from cutaway.tokenizer.huggingface.decoders import read_decoder
from cutaway.tokenizer.huggingface.normalizers import NORMALIZERS, read_normalizer
from cutaway.tokenizer.huggingface.post_processors import read_post_processor
from cutaway.tokenizer.huggingface.pre_tokenizers import BEHAVIOURS, PRE_TOKENIZERS, read_pre_tokenizer
from cutaway.tokenizer.words import cut_words


def serialized(component: Any) -> Component:
    """A component of the package, as it writes it."""
    holder = tokenizers.Tokenizer(tokenizers.models.BPE())
    place = "normalizer" if isinstance(component, normalizers.Normalizer) else "pre_tokenizer"
    setattr(holder, place, component)
    return Component(json.loads(holder.to_str())[place], place)


REGEX = tokenizers.Regex
SOME_NORMALIZERS = {
    "NFC": normalizers.NFC(),
    "NFD": normalizers.NFD(),
    "NFKC": normalizers.NFKC(),
    "NFKD": normalizers.NFKD(),
    "Lowercase": normalizers.Lowercase(),
    "Strip": normalizers.Strip(),
    "Strip, left": normalizers.Strip(left=True, right=False),
    "Strip, neither": normalizers.Strip(left=False, right=False),
    "StripAccents": normalizers.StripAccents(),
    "Replace": normalizers.Replace(" ", "▁"),
    "Replace, by pattern": normalizers.Replace(REGEX(" {2,}|e"), r"\1"),
    "Prepend": normalizers.Prepend("▁"),
    "Precompiled": normalizers.Precompiled(charsmap(NMT_LIKE)),
    "ByteLevel": normalizers.ByteLevel(),
    "Sequence": normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase(), normalizers.StripAccents()]),
}


@settings(max_examples=30)
@given(texts.filter(in_every_unicode))
@pytest.mark.parametrize("name", SOME_NORMALIZERS)
def test_normalizers(name: str, text: str) -> None:
    component = SOME_NORMALIZERS[name]
    assert read_normalizer(serialized(component))(text) == component.normalize_str(text)


def test_every_normalizer_is_tried() -> None:
    assert {name.split(",")[0] for name in SOME_NORMALIZERS} == set(NORMALIZERS)


def splits() -> dict[str, Any]:
    behaviours = {"Isolated": "isolated", "Removed": "removed", "Contiguous": "contiguous"}
    behaviours |= {"MergedWithPrevious": "merged_with_previous", "MergedWithNext": "merged_with_next"}
    assert set(behaviours) == set(BEHAVIOURS)
    return {
        f"Split, {name}, {i}, {invert}": pre_tokenizers.Split(pattern, behaviour, invert=invert)
        for name, behaviour in behaviours.items()
        for i, pattern in enumerate((" ", REGEX(r"\s?\w"), REGEX(r"(e|\d)|$"), REGEX(r"[\W\d]\h*|(?=\H)")))
        for invert in (False, True)
    }


SOME_PRE_TOKENIZERS = splits() | {
    "ByteLevel": pre_tokenizers.ByteLevel(),
    "ByteLevel, no prefix": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "ByteLevel, no pattern": pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False),
    "Digits": pre_tokenizers.Digits(individual_digits=True),
    "Digits, together": pre_tokenizers.Digits(),
    "Punctuation": pre_tokenizers.Punctuation(),
    "Punctuation, contiguous": pre_tokenizers.Punctuation("contiguous"),
    "Punctuation, merged": pre_tokenizers.Punctuation("merged_with_previous"),
    "Whitespace": pre_tokenizers.Whitespace(),
    "WhitespaceSplit": pre_tokenizers.WhitespaceSplit(),
    "Metaspace": pre_tokenizers.Metaspace(),
    "Metaspace, first": pre_tokenizers.Metaspace(prepend_scheme="first"),
    "Metaspace, never": pre_tokenizers.Metaspace(prepend_scheme="never"),
    "Metaspace, whole": pre_tokenizers.Metaspace(split=False),
    "Sequence": pre_tokenizers.Sequence(
        [pre_tokenizers.Split(REGEX("[\r\n]"), "isolated"), pre_tokenizers.Metaspace(prepend_scheme="first")]
    ),
    # Digits behind the byte alphabet see its letters, of which some are numbers to Unicode.
    "Sequence, digits last": pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(), pre_tokenizers.Digits()]),
}


@settings(max_examples=30)
@given(texts.filter(in_every_unicode))
@pytest.mark.parametrize("name", SOME_PRE_TOKENIZERS)
def test_pre_tokenizers(name: str, text: str) -> None:
    component = SOME_PRE_TOKENIZERS[name]
    expected = [word for word, _ in component.pre_tokenize_str(text)]
    assert cut_words(text, read_pre_tokenizer(serialized(component))) == expected


def test_every_pre_tokenizer_is_tried() -> None:
    assert {name.split(",")[0] for name in SOME_PRE_TOKENIZERS} == set(PRE_TOKENIZERS)


READERS = {
    "normalizer": read_normalizer,
    "pre_tokenizer": read_pre_tokenizer,
    "decoder": read_decoder,
    "post_processor": read_post_processor,
}


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("normalizer", {"type": "BertNormalizer"}, "normalizer is of type 'BertNormalizer', which is not supported"),
        ("pre_tokenizer", {"type": "UnicodeScripts"}, "pre_tokenizer is of type 'UnicodeScripts'"),
        (
            "pre_tokenizer",
            {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "CharDelimiterSplit"}]},
            r"pre_tokenizer.pretokenizers\[1\] is of type 'CharDelimiterSplit'",
        ),
        ("decoder", {"type": "WordPiece"}, "decoder is of type 'WordPiece'"),
        ("decoder", None, "decoder is missing"),
        ("decoder", {"type": "Strip", "content": "x", "start": 1, "stop": 0}, "strips 'x'"),
        ("decoder", {"type": "Replace", "pattern": {"Regex": "a"}, "content": ""}, "pattern that is no text"),
        ("post_processor", {"type": "BertProcessing"}, "post_processor is of type 'BertProcessing'"),
        ("normalizer", {}, "normalizer.type of tokenizer.json is None; it must be text"),
        ("normalizer", [], r"normalizer of tokenizer.json is \[\]; it must be an object"),
        ("normalizer", {"type": "Prepend", "prepend": 1}, "normalizer.prepend of tokenizer.json is 1; it must be text"),
        ("normalizer", {"type": "Replace", "content": ""}, "has no pattern"),
        ("normalizer", {"type": "Replace", "pattern": {"Regex": "(", "content": ""}}, r"pattern is '\('"),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "!"}, "no base 64"),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, "3 bytes"),
        ("pre_tokenizer", {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "last"}, "prepend_scheme 'last'"),
        ("pre_tokenizer", {"type": "Punctuation", "behavior": "Doubled"}, "behavior 'Doubled'"),
        ("pre_tokenizer", {"type": "Digits", "individual_digits": "yes"}, "it must be true or false"),
    ],
)
def test_what_is_not_supported_is_named(place: str, value: Any, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        READERS[place](None if value is None else Component(value, place))


def test_a_character_map_comes_in_base_64() -> None:
    component = Component(
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap({"ﬁ": "fi"})).decode()}, "normalizer"
    )
    assert read_normalizer(component)("ﬁne") == "fine"
