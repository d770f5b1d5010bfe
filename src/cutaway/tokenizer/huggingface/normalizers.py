"""The ``normalizer`` of a ``tokenizer.json``: what is done to characters before text is cut.

In: the component. Out: a function from text to text.
"""

import base64
import binascii
import unicodedata
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import regex  # type: ignore[import-untyped]

from cutaway.tokenizer.byte_alphabet import to_byte_alphabet
from cutaway.tokenizer.charsmap import CharacterMap
from cutaway.tokenizer.huggingface.component import Component
from cutaway.tokenizer.huggingface.patterns import read_pattern
from cutaway.tokenizer.word_model import unchanged

Rewrite: TypeAlias = Callable[[str], str]


def read_normalizer(component: Component | None) -> Rewrite:
    """The normalizer; none leaves text as it is.

    Raises:
        ModelFileError: a component is malformed or not supported.
    """
    if component is None:
        return unchanged
    if component.type not in NORMALIZERS:
        component.refuse_type(", ".join(NORMALIZERS))
    return NORMALIZERS[component.type](component)


def _sequence(component: Component) -> Rewrite:
    rewrites = [read_normalizer(each) for each in component.children("normalizers")]

    def rewrite(text: str) -> str:
        for each in rewrites:
            text = each(text)
        return text

    return rewrite


def _lowercase(component: Component) -> Rewrite:
    return lambda text: "".join([character.lower() for character in text])  # a final sigma is no exception here


def _strip(component: Component) -> Rewrite:
    left = r"\A\s+" if component.flag("strip_left") else ""
    right = r"\s+\Z" if component.flag("strip_right") else ""
    ends = regex.compile("|".join(filter(None, (left, right))) or r"(?!)")
    return lambda text: str(ends.sub("", text))


def _strip_accents(component: Component) -> Rewrite:
    return lambda text: "".join([each for each in text if not unicodedata.category(each).startswith("M")])


def _replace(component: Component) -> Rewrite:
    pattern = read_pattern(component)
    content = component.text("content")
    return lambda text: str(pattern.sub(lambda _: content, text))


def _prepend(component: Component) -> Rewrite:
    prefix = component.text("prepend")
    return lambda text: prefix + text if text else text


def _precompiled(component: Component) -> Rewrite:
    encoded = component.text("precompiled_charsmap")
    try:
        data = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        component.refuse(f"has a character map that is no base 64 ({error})")
    return CharacterMap(data).by_grapheme if data else unchanged


NORMALIZERS: Mapping[str, Callable[[Component], Rewrite]] = MappingProxyType(
    {
        "Sequence": _sequence,
        "NFC": lambda _: lambda text: unicodedata.normalize("NFC", text),
        "NFD": lambda _: lambda text: unicodedata.normalize("NFD", text),
        "NFKC": lambda _: lambda text: unicodedata.normalize("NFKC", text),
        "NFKD": lambda _: lambda text: unicodedata.normalize("NFKD", text),
        "Lowercase": _lowercase,
        "Strip": _strip,
        "StripAccents": _strip_accents,
        "Replace": _replace,
        "Prepend": _prepend,
        "Precompiled": _precompiled,
        "ByteLevel": lambda _: to_byte_alphabet,
    }
)
