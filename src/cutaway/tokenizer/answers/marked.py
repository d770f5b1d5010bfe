"""Content with calls between markers in it: ``<tool_call>{…}</tool_call>`` and ``[TOOL_CALLS]…``.

In: characters. Out: events. White space before the first content, and beside calls, belongs to the format.
Sources: the chat templates of Hermes 2 Pro and Qwen2.5; Mistral's of Mistral 7B v0.3, and of mistral-common for its
tokenizers 7 to 13.
"""

from typing import Final

from cutaway.tokenizer.answers.characters import END, Characters, Parse
from cutaway.tokenizer.answers.events import Events
from cutaway.tokenizer.answers.json_call import bare_calls, list_of_calls, object_call, raw_object

HERMES: Final = ("<tool_call>", "</tool_call>")
MISTRAL: Final = ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]")
MOST_NAME: Final = 64


def hermes_answer(chars: Characters, events: Events) -> Parse[None]:
    """``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, any number of them, anywhere; ends may lack.

    An answer that begins with such an object without its markers, as Qwen2.5-Coder's do, begins with a call, too.
    """
    begin, end = HERMES
    yield from bare_calls(chars, events)
    while (before := (yield from until(begin, chars, events))) is not None:
        space = yield from chars.space()
        if (yield from chars.literal("{")) is None:
            events.content(before + begin + space)
            continue
        failed = yield from object_call(chars, events)
        if failed is not None:
            events.content(before + begin + space + failed)
            continue
        space = yield from chars.space()
        if not (yield from chars.closing(end)):
            chars.put_back(space)


def mistral_answer(chars: Characters, events: Events) -> Parse[None]:
    """``[TOOL_CALLS][{"name": …, "arguments": {…}}, …]``, or ``[TOOL_CALLS]name[ARGS]{…}`` for each call."""
    begin = MISTRAL[0]
    while (before := (yield from until(begin, chars, events))) is not None:
        before += begin + (yield from chars.space())
        if (yield from chars.literal("[")) is not None:
            failed = yield from list_of_calls(chars, events)
        else:
            failed = yield from _named_call(chars, events)
        if failed is not None:
            events.content(before + failed)


def _named_call(chars: Characters, events: Events) -> Parse[str | None]:
    """``name[ARGS]{…}``, with ``[CALL_ID]…`` before the arguments or not; or what was read, if it is none."""
    _, call_id, arguments = MISTRAL
    name = yield from _word(chars)
    read = name
    if not events.may_call(name):
        return read
    if (yield from chars.literal(call_id)) is not None:
        read += call_id + (yield from _word(chars))
    if (yield from chars.literal(arguments)) is not None:
        read += arguments
    read += yield from chars.space()
    if (yield from chars.literal("{")) is None:
        return read
    events.begin(name)
    yield from raw_object(chars, events)
    return None


def _word(chars: Characters) -> Parse[str]:
    """Letters, digits, ``_`` and ``-``, as names of functions have them."""
    found = ""
    while len(found) < MOST_NAME:
        character = yield from chars.next()
        if not (character.isascii() and (character.isalnum() or (character and character in "_-"))):
            chars.put_back(character)
            break
        found += character
    return found


def until(marker: str, chars: Characters, events: Events) -> Parse[str | None]:
    """Add content until the marker has been read; None at the end of the text.

    Returns the white space before the marker, which has not been added, since it may belong to the format.
    """
    space, calls = "", events.num_calls
    edge = True  # no content came yet, or none since a call
    while True:
        if edge:
            space = yield from chars.space()
        if (yield from chars.literal(marker)) is not None:
            return space
        character = yield from chars.next()
        if character == END:
            if not calls:
                events.content(space)
            return None
        events.content(space + character)
        space, edge = "", False
