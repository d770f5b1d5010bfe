"""The thoughts at the beginning of an answer, between two markers.

In: characters. Out: reasoning; what comes behind it is left to be read. Line ends beside the markers belong to them.
Source: the chat templates of DeepSeek-R1 and Qwen3; Mistral's of Magistral.
"""

from typing import Final, NamedTuple

from cutaway.tokenizer.answers.characters import END, SPACE, Characters, Parse
from cutaway.tokenizer.answers.events import Events


class Markers(NamedTuple):
    """What stands before and behind thoughts."""

    begin: str
    end: str


REASONING: Final = (Markers("<think>", "</think>"), Markers("[THINK]", "[/THINK]"))


def reasoning(markers: Markers, chars: Characters, events: Events, *, is_open: bool) -> Parse[None]:
    """Thoughts, if the answer begins with them. is_open: the prompt has the first marker already."""
    if not is_open:
        space = yield from chars.space()
        if (yield from chars.literal(markers.begin)) is None:
            chars.put_back(space)
            return
    yield from _line_ends(chars)
    space = ""
    while (yield from chars.literal(markers.end)) is None:
        character = yield from chars.next()
        if character == END:
            events.reasoning(space)
            return
        if character in SPACE:
            space += character
        else:
            events.reasoning(space + character)
            space = ""
    yield from _line_ends(chars)


def _line_ends(chars: Characters) -> Parse[None]:
    """Read line ends, and no spaces but those before them."""
    space = yield from chars.space()
    chars.put_back(space[space.rfind("\n") + 1 :])
