"""The ``normalizer`` of a ``tokenizer.json``: what is done to characters before text is cut.

In: the component. Out: a function from text to text.
"""

import base64
import unicodedata
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

import regex  # type: ignore[import-untyped]

from cutaway.tokenizer.byte_alphabet import to_byte_alphabet
from cutaway.tokenizer.charsmap import CharacterMap
from cutaway.tokenizer.huggingface.component import Component
from cutaway.tokenizer.huggingface.growth import check_length, longest_rewrite
from cutaway.tokenizer.huggingface.patterns import read_pattern
from cutaway.tokenizer.word_model import unchanged

Rewrite: TypeAlias = Callable[[str], str]


def read_normalizer(component: Component | None) -> Rewrite:
    """The normalizer; none leaves text as it is.

    Raises:
        ModelFileError: a component is malformed or not supported. The function raises it for a text of which the
            components make too much.
    """
    if component is None:
        return unchanged
    rewrites = _read(component)

    def rewrite(text: str) -> str:
        longest = longest_rewrite(text)
        for each in rewrites:
            text = each(text)
            check_length(text, longest, "normalizer")
        return text

    return rewrite


def _read(component: Component) -> list[Rewrite]:
    """The component's steps: of a sequence, those of all its parts."""
    if component.type not in NORMALIZERS:
        component.refuse_type(", ".join(NORMALIZERS))
    return NORMALIZERS[component.type](component)


def _sequence(component: Component) -> list[Rewrite]:
    return [rewrite for each in component.children("normalizers") for rewrite in _read(each)]


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
    content = component.content("content")
    return lambda text: str(pattern.sub(lambda _: content, text))


def _prepend(component: Component) -> Rewrite:
    prefix = component.content("prepend")
    return lambda text: prefix + text if text else text


def _precompiled(component: Component) -> Rewrite:
    encoded = component.text("precompiled_charsmap")
    try:
        data = base64.b64decode(encoded, validate=True)
    except ValueError as error:  # binascii.Error is one; characters that aren't ASCII are another
        component.refuse(f"has a character map that is no base 64 ({error})")
    return CharacterMap(data).by_grapheme if data else unchanged


def _one(read: Callable[[Component], Rewrite]) -> Callable[[Component], list[Rewrite]]:
    """A component that is one step."""
    return lambda component: [read(component)]


def _unicode(form: Literal["NFC", "NFD", "NFKC", "NFKD"]) -> Callable[[Component], list[Rewrite]]:
    return _one(lambda _: lambda text: unicodedata.normalize(form, text))


NORMALIZERS: Mapping[str, Callable[[Component], list[Rewrite]]] = MappingProxyType(
    {
        "Sequence": _sequence,
        "NFC": _unicode("NFC"),
        "NFD": _unicode("NFD"),
        "NFKC": _unicode("NFKC"),
        "NFKD": _unicode("NFKD"),
        "Lowercase": _one(_lowercase),
        "Strip": _one(_strip),
        "StripAccents": _one(_strip_accents),
        "Replace": _one(_replace),
        "Prepend": _one(_prepend),
        "Precompiled": _one(_precompiled),
        "ByteLevel": _one(lambda _: to_byte_alphabet),
    }
)
