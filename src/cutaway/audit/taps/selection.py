"""What a tap selects, as a text: ``layers.3.attention``, ``layers.0-5.resid@generated``, ``logits@steps:1-4``.

In: the text. Out: a name, layers and positions. Names are looked up when the model is known.

    [layers.LAYERS.]NAME[@PLACES]

    LAYERS   *  3  0-5  0,2,7       default for a tensor of the layers: all
    PLACES   all  prompt  generated  answer  12  4-9  steps:0  steps:1-4, and several with commas

``generated`` are the positions of generated tokens, ``answer`` those from whose logits they were chosen: one earlier.
Step 0 computes the prompt, however it is cut; step k computes the k-th generated token.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cutaway.audit.taps.tensors import ALIASES, TapTensor
from cutaway.errors import InvalidRequestError, counted, shown

SYNTAX: Final = re.compile(r"(?:layers\.(?P<layers>[^.@]*)\.)?(?P<name>[^@]+)(?:@(?P<places>.*))?", re.DOTALL)
RANGE: Final = re.compile(r"(?P<steps>steps?:)?(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?", re.ASCII)
WORDS: Final = ("all", "prompt", "generated", "answer")
ALL_LAYERS: Final = "*"
MOST_CHARACTERS: Final = 200
MOST_NEAR: Final = 3  # names that an error suggests

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Selection:
    """One tap of a request."""

    text: str
    layers: str | None
    name: str
    places: str | None


def parse(text: object) -> Selection:
    """Raises InvalidRequestError for what is no tap."""
    found = SYNTAX.fullmatch(text) if isinstance(text, str) and len(text) <= MOST_CHARACTERS else None
    if found is None or not isinstance(text, str):
        raise InvalidRequestError(
            f"a tap is {shown(text)}; it must be [layers.LAYERS.]NAME[@PLACES], {MOST_CHARACTERS} characters at most, "
            "as in 'layers.3.attention', 'layers.*.resid@generated' or 'logits'.",
            "taps",
        )
    selection = Selection(text, found["layers"], found["name"], found["places"])
    for part in ("all" if selection.places is None else selection.places).split(","):
        if part.strip() not in WORDS and RANGE.fullmatch(part.strip()) is None:
            raise InvalidRequestError(
                f"the tap {shown(text)} has the places {shown(part.strip())}; they must be {', '.join(WORDS)}, "
                "positions as in 12 or 4-9, or steps as in steps:0 or steps:1-4; several with commas.",
                "taps",
            )
    return selection


def tensor_of(selection: Selection, tensors: Mapping[str, TapTensor]) -> TapTensor:
    """The tensor of this name; InvalidRequestError, with the nearest names, where there is none."""
    name = ALIASES.get(selection.name, selection.name)
    tensor = tensors.get(name)
    if tensor is None:
        near = difflib.get_close_matches(selection.name[:100], [*tensors, *ALIASES], MOST_NEAR, 0.4)
        hint = f"The nearest names are {', '.join(near)}." if near else "docs/taps.md has all names."
        raise InvalidRequestError(
            f"the tap {shown(selection.text)} names {shown(selection.name)}, and there is no such tensor. {hint}",
            "taps",
        )
    if selection.layers is not None and not tensor.in_layers:
        raise InvalidRequestError(
            f"the tap {shown(selection.text)} names layers, and {tensor.name} is outside of them. Write {tensor.name}.",
            "taps",
        )
    return tensor


def layers_of(selection: Selection, num_layers: int) -> list[int]:
    """The layers that are selected. Raises InvalidRequestError for one that the model doesn't have."""
    if selection.layers in (None, ALL_LAYERS):
        return list(range(num_layers))
    chosen: set[int] = set()
    for part in str(selection.layers).split(","):
        found = RANGE.fullmatch(part.strip())
        first = int(found["first"]) if found and not found["steps"] else num_layers
        last = int(found["last"]) if found and found["last"] else first
        if not first <= last < num_layers:
            raise InvalidRequestError(
                f"the tap {shown(selection.text)} has the layers {shown(part.strip())}; the model has 0 to "
                f"{num_layers - 1}. Write them as 3, 0-5, 0,2,7 or *.",
                "taps",
            )
        chosen |= set(range(first, last + 1))
    return sorted(chosen)


def positions_of(selection: Selection, of_outputs: bool, num_prompt: int, num_positions: int) -> Mask:
    """Which positions are selected, [num_positions]: those of the prompt, then of each generated token but the last,
    which is never an input. of_outputs: where nothing is said, ``answer`` is meant, else ``all``.
    """
    chosen = np.zeros(num_positions, np.bool_)
    for part in (selection.places or ("answer" if of_outputs else "all")).split(","):
        first, end = _range_of(part.strip(), num_prompt, num_positions)
        if part.strip() not in WORDS and first >= min(end, num_positions):
            raise _no_position(selection, part.strip(), num_prompt, num_positions)
        chosen[first:end] = True
    if not chosen.any():
        raise _no_position(selection, str(selection.places), num_prompt, num_positions)
    return chosen


def _no_position(selection: Selection, places: str, num_prompt: int, num_positions: int) -> InvalidRequestError:
    at = "" if places == selection.places else f", at {shown(places)},"
    generated = num_positions - num_prompt
    if places.startswith("step"):
        there = f"the request has the steps 0 to {generated} at most" if generated else "the request has step 0 alone"
    else:
        prompt = counted(num_prompt, "position")
        there = (
            f"the request has {prompt} of the prompt, {num_positions} with the answer at most: 0 to {num_positions - 1}"
        )
    return InvalidRequestError(
        f"the tap {shown(selection.text)}{at} selects no position: {there}. Name some of these, or raise max_tokens.",
        "taps",
    )


def _range_of(part: str, num_prompt: int, num_positions: int) -> tuple[int, int]:
    """First and end."""
    words = {
        "all": (0, num_positions),
        "prompt": (0, num_prompt),
        "generated": (num_prompt, num_positions),
        "answer": (num_prompt - 1, num_positions),
    }
    if part in words:
        return words[part]
    found = RANGE.fullmatch(part)
    assert found is not None, "it was parsed"
    first, last = int(found["first"]), int(found["last"] or found["first"])
    if not found["steps"]:
        return first, last + 1
    return num_prompt + first - 1 if first else 0, num_prompt + last
