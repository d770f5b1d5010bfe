"""The ``pre_tokenizer`` of a ``tokenizer.json``: how text is cut into words.

In: the component. Out: steps from pieces to pieces.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import regex  # type: ignore[import-untyped]

from cutaway.tokenizer.byte_alphabet import to_byte_alphabet
from cutaway.tokenizer.huggingface.component import Component
from cutaway.tokenizer.huggingface.patterns import read_pattern
from cutaway.tokenizer.pretokenize import GPT2, PUNCTUATION
from cutaway.tokenizer.words import RewriteStep, WordStep, isolate

Part: TypeAlias = tuple[int, int, bool]  # start, stop, is it a match of the pattern?


def read_pre_tokenizer(component: Component | None) -> list[WordStep]:
    """The steps of the pre-tokenizer; none where there is none.

    Raises:
        ModelFileError: a component is malformed or not supported.
    """
    if component is None:
        return []
    if component.type not in PRE_TOKENIZERS:
        component.refuse_type(", ".join(PRE_TOKENIZERS))
    return PRE_TOKENIZERS[component.type](component)


def _sequence(component: Component) -> list[WordStep]:
    return [step for each in component.children("pretokenizers") for step in read_pre_tokenizer(each)]


def _byte_level(component: Component) -> list[WordStep]:
    steps: list[WordStep] = []
    if component.flag("add_prefix_space", True):
        steps.append(RewriteStep(lambda piece: piece if piece.startswith(" ") else " " + piece))
    if component.flag("use_regex", True):
        steps.append(isolate(GPT2))
    return [*steps, RewriteStep(to_byte_alphabet)]


def _split(component: Component) -> list[WordStep]:
    behaviour = component.text("behavior")
    return [_split_step(component, read_pattern(component), behaviour, component.flag("invert", False))]


def _digits(component: Component) -> list[WordStep]:
    behaviour = "Isolated" if component.flag("individual_digits", False) else "Contiguous"
    return [_split_step(component, regex.compile(r"\p{N}"), behaviour)]


def _punctuation(component: Component) -> list[WordStep]:
    return [_split_step(component, regex.compile(PUNCTUATION), component.text("behavior", "Isolated"))]


def _whitespace(component: Component) -> list[WordStep]:
    return [_split_step(component, regex.compile(r"\w+|[^\w\s]+"), "Removed", invert=True)]


def _whitespace_split(component: Component) -> list[WordStep]:
    return [_split_step(component, regex.compile(r"\s"), "Removed")]


def _metaspace(component: Component) -> list[WordStep]:
    """Spaces become a mark that stays with the word behind it."""
    space = component.character("replacement")
    prepends = component.flag("add_prefix_space", True)
    scheme = component.text("prepend_scheme", "always" if prepends else "never")
    if scheme not in ("always", "first", "never"):
        component.refuse(f"has prepend_scheme {scheme!r}")

    def prepend(pieces: list[str], at_start: bool) -> list[str]:
        rewritten: list[str] = []
        for i, piece in enumerate(pieces):
            piece = piece.replace(" ", space)
            wanted = scheme == "always" or (scheme == "first" and at_start and i == 0)
            rewritten.append(space + piece if wanted and not piece.startswith(space) else piece)
        return rewritten

    if not component.flag("split", True):
        return [prepend]
    return [prepend, _split_step(component, regex.compile(regex.escape(space)), "MergedWithNext")]


PRE_TOKENIZERS: Mapping[str, Callable[[Component], list[WordStep]]] = MappingProxyType(
    {
        "Sequence": _sequence,
        "ByteLevel": _byte_level,
        "Split": _split,
        "Digits": _digits,
        "Punctuation": _punctuation,
        "Whitespace": _whitespace,
        "WhitespaceSplit": _whitespace_split,
        "Metaspace": _metaspace,
    }
)


def _split_step(component: Component, pattern: Any, behaviour: str, invert: bool = False) -> WordStep:
    """The step that cuts pieces by a pattern.

    Args:
        behaviour: what becomes of the matches: ``Isolated`` and ``Removed`` as they say; ``Contiguous`` joins
            neighbours that both match, or both don't; ``MergedWithPrevious`` and ``MergedWithNext`` join a match to a
            neighbour.
        invert: what doesn't match counts as the matches.
    """
    if behaviour not in BEHAVIOURS:
        component.refuse(f"has behavior {behaviour!r}")
    arrange = BEHAVIOURS[behaviour]

    def step(pieces: list[str], at_start: bool) -> list[str]:
        return [
            piece[start:stop]
            for piece in pieces
            for start, stop, _ in arrange([*_parts(pattern, piece, invert)])
            if stop > start
        ]

    return step


def _parts(pattern: Any, piece: str, invert: bool) -> Iterator[Part]:
    """The matches and what lies between, in order; no empty match at the end of another one."""
    end = 0
    for match in pattern.finditer(piece):
        start, stop = match.span()
        if start == stop == end > 0:
            continue
        if start > end:
            yield end, start, invert
        yield start, stop, not invert
        end = stop
    if end < len(piece):
        yield end, len(piece), invert


def _removed(parts: list[Part]) -> list[Part]:
    return [part for part in parts if not part[2]]


def _contiguous(parts: list[Part]) -> list[Part]:
    joined: list[Part] = []
    for start, stop, is_match in parts:
        if joined and joined[-1][2] == is_match:
            joined[-1] = (joined[-1][0], stop, is_match)
        else:
            joined.append((start, stop, is_match))
    return joined


def _merged_with_previous(parts: list[Part]) -> list[Part]:
    joined: list[Part] = []
    after_match = False
    for start, stop, is_match in parts:
        if is_match and not after_match and joined:
            joined[-1] = (joined[-1][0], stop, False)
        else:
            joined.append((start, stop, False))
        after_match = is_match
    return joined


def _merged_with_next(parts: list[Part]) -> list[Part]:
    joined: list[Part] = []
    before_match = False
    for start, stop, is_match in reversed(parts):
        if is_match and not before_match and joined:
            joined[-1] = (start, joined[-1][1], False)
        else:
            joined.append((start, stop, False))
        before_match = is_match
    return joined[::-1]


BEHAVIOURS: Mapping[str, Callable[[list[Part]], list[Part]]] = MappingProxyType(
    {
        "Isolated": lambda parts: parts,
        "Removed": _removed,
        "Contiguous": _contiguous,
        "MergedWithPrevious": _merged_with_previous,
        "MergedWithNext": _merged_with_next,
    }
)
