"""The ``decoder`` of a ``tokenizer.json``: how pieces become text again.

In: the component. Out: the few facts that it comes to: in which spelling pieces stand for bytes, and whether a space is
taken from the beginning of the text.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cutaway.tokenizer.byte_alphabet import piece_bytes
from cutaway.tokenizer.huggingface.component import Component
from cutaway.tokenizer.huggingface.growth import check_length, longest_rewrite

BYTE_PIECE = re.compile("<0x[0-9A-Fa-f]{2}>")


@dataclass
class Spelling:
    """``byte_alphabet``: pieces are in the byte alphabet. ``replaced``: text in pieces → text, as ▁ → space.
    ``byte_pieces``: ``<0xNN>`` is a byte. ``adds_space``: one space is taken from the beginning of the text.
    """

    byte_alphabet: bool
    replaced: dict[str, str]
    byte_pieces: bool = False
    adds_space: bool = False

    def bytes_of(self, piece: str) -> bytes:
        """The bytes that a piece stands for.

        Raises:
            ModelFileError: the replacements, one after the other, make too much of it.
        """
        if self.byte_alphabet:
            return piece_bytes(piece)
        if self.byte_pieces and BYTE_PIECE.fullmatch(piece):
            return bytes([int(piece[3:5], 16)])
        longest = longest_rewrite(piece)
        for old, new in self.replaced.items():
            piece = piece.replace(old, new)
            check_length(piece, longest, "decoder")
        return piece.encode("utf-8")


def read_decoder(component: Component | None) -> Spelling:
    """How the decoder spells pieces.

    Raises:
        ModelFileError: there is none, or it is malformed or not supported.
    """
    spelling = Spelling(False, {})
    if component is None:
        Component({}, "decoder").refuse("is missing, so that pieces would be joined by spaces")
    _read(component, spelling)
    return spelling


def _read(component: Component, spelling: Spelling) -> None:
    if component.type not in DECODERS:
        component.refuse_type(", ".join(DECODERS))
    DECODERS[component.type](component, spelling)


def _sequence(component: Component, spelling: Spelling) -> None:
    for each in component.children("decoders"):
        _read(each, spelling)


def _byte_level(component: Component, spelling: Spelling) -> None:
    spelling.byte_alphabet = True


def _byte_fallback(component: Component, spelling: Spelling) -> None:
    spelling.byte_pieces = True


def _metaspace(component: Component, spelling: Spelling) -> None:
    prepends = component.flag("add_prefix_space", True)
    scheme = component.text("prepend_scheme", "always" if prepends else "never")
    spelling.replaced[component.character("replacement")] = " "
    spelling.adds_space = scheme != "never"


def _replace(component: Component, spelling: Spelling) -> None:
    pattern = component.child("pattern")
    if pattern is None or "String" not in pattern.fields:
        component.refuse("has a pattern that is no text")
    spelling.replaced[pattern.text("String")] = component.content("content")


def _strip(component: Component, spelling: Spelling) -> None:
    start, stop = component.integer("start"), component.integer("stop")
    if component.text("content") != " " or start not in (0, 1) or stop:
        component.refuse(f"strips {component.fields.get('content')!r} {start} times at the start and {stop} at the end")
    spelling.adds_space = start == 1


def _nothing(component: Component, spelling: Spelling) -> None:
    """Joins pieces, as is always done."""


DECODERS: Mapping[str, Callable[[Component, Spelling], None]] = MappingProxyType(
    {
        "Sequence": _sequence,
        "ByteLevel": _byte_level,
        "ByteFallback": _byte_fallback,
        "Metaspace": _metaspace,
        "Replace": _replace,
        "Strip": _strip,
        "Fuse": _nothing,
    }
)
