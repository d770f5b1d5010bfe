"""Calls that are JSON objects with a name and arguments, as they come.

In: characters. Out: events; or the text that was read, where it is no call.
Until the name is known and the arguments begin, every character must fit; from then on the arguments are what the model
writes until their braces are closed.
Sources: RFC 8259; Llama 3.1, "Prompt template", JSON based tool calling; Gemma, "Function calling".
"""

import json
from typing import Any, Final

from cutaway.tokenizer.answers.characters import END, SPACE, Characters, Parse
from cutaway.tokenizer.answers.events import Events
from cutaway.tokenizer.tool_calls import is_object

ARGUMENTS: Final = ("arguments", "parameters")
BESIDE: Final = ("type", "id")  # what else a call without markers may have
PYTHON_TAG: Final = "<|python_tag|>"
FENCE: Final = "```"
_DELIMITERS: Final = f",]}}{SPACE}"


def bare_calls(chars: Characters, events: Events) -> Parse[None]:
    """Read calls that stand without markers: objects, divided by ``;`` or white space or in lists; or nothing.

    Before them may come ``<|python_tag|>``, and around them a fence, as of Markdown.
    """
    before = yield from chars.space()
    before += (yield from chars.literal(PYTHON_TAG)) or ""
    fence = yield from chars.literal(FENCE)
    if fence is not None:
        before += fence + ((yield from chars.literal("json")) or "")
    before += yield from chars.space()
    first = events.num_calls
    while (bracket := (yield from chars.literal("{", "["))) is not None:
        if bracket == "{":
            failed = yield from object_call(chars, events, bare=True)
        else:
            failed = yield from list_of_calls(chars, events, bare=True)
        if failed is not None:
            events.content(before + failed)
            return
        before = yield from chars.space()
        if (yield from chars.literal(";")) is not None:
            before = ";" + (yield from chars.space())
    if events.num_calls > first:
        if fence is not None and (yield from chars.closing(FENCE)):
            before = yield from chars.space()
        following = yield from chars.next()
        chars.put_back(following)
        if following == END:
            return
    chars.put_back(before)


def object_call(chars: Characters, events: Events, *, bare: bool = False) -> Parse[str | None]:
    """Read a call, whose first brace has been read; its last is read, too, if it is there.

    None if it was a call. Else what was read of it, with the first brace, up to the first character that doesn't fit,
    which comes next. bare: no marker says that this is to be a call; so it needs arguments, and has few other keys.
    """
    reader = _Reader(chars)
    name: Any = None
    kept: str | None = None  # arguments that came before the name
    called = False
    while True:
        yield from reader.space()
        key = yield from reader.string()
        if key is None or not (yield from reader.colon()):
            break
        if key == "name" and name is None:
            name = yield from reader.string()
            if not events.may_call(name):
                return reader.text
            if kept is not None:
                events.call(name, kept)
                called = reader.mark()
        elif key in ARGUMENTS and not called and kept is None:
            if name is None:
                kept = yield from reader.arguments()
                if kept is None:
                    return reader.text
            else:
                if not (yield from reader.call(events, name)):
                    return reader.text
                called = reader.mark()
        elif (bare and key not in BESIDE) or (yield from reader.value()) is None:
            break
        yield from reader.space()
        delimiter = yield from chars.next()
        if delimiter == ",":
            reader.add(delimiter)
        elif delimiter == "}":
            if called:
                return None
            if name is not None and not bare:
                events.call(name, "{}")
                return None
            reader.add(delimiter)
            return reader.text
        else:
            chars.put_back(delimiter)
            break
    if not called:
        return reader.text
    events.content(reader.rest.lstrip(SPACE))  # what is behind the arguments and no end of the object
    return None


def list_of_calls(chars: Characters, events: Events, *, bare: bool = False) -> Parse[str | None]:
    """The calls of a list whose bracket has been read; or what was read, if the first is none. bare: as of objects."""
    read, called = "[", False
    while True:
        read += yield from chars.space()
        if (yield from chars.literal("{")) is None:
            break
        failed = yield from object_call(chars, events, bare=bare)
        if failed is not None:
            read += failed
            break
        called, read = True, (yield from chars.space())
        delimiter = yield from chars.literal(",", "]")
        if delimiter == "]":
            return None
        if delimiter is None:
            break
        read += delimiter
    if not called:
        return read
    following = yield from chars.next()
    chars.put_back(following)
    if following != END or read.strip(SPACE + ","):  # a comma at the end of an answer that is cut says nothing
        events.content(read.lstrip(SPACE))
    return None


def raw_object(chars: Characters, events: Events) -> Parse[bool]:
    """Add arguments, whose first brace has been read, to the call that has begun; whether they were closed."""
    events.arguments("{")
    depth, within = 1, False
    while depth:
        character = yield from chars.next()
        if character == END:
            return False
        events.arguments(character)
        if within:
            if character == "\\":
                events.arguments((yield from chars.next()))
            within = character != '"'
        else:
            within = character == '"'
            depth += (character == "{") - (character == "}")
    events.end()
    return True


class _Reader:
    """Reads JSON, and keeps what it has read. Its methods return None where something else comes."""

    def __init__(self, chars: Characters) -> None:
        self._chars = chars
        self._read = ["{"]
        self._behind = 0  # how much of it had been read when the call was whole

    @property
    def text(self) -> str:
        """All that was read."""
        return "".join(self._read)

    @property
    def rest(self) -> str:
        """What was read behind the mark."""
        return "".join(self._read[self._behind :])

    def mark(self) -> bool:
        """The call is whole here. True."""
        self._behind = len(self._read)
        return True

    def add(self, text: str) -> None:
        """Keep what somebody else has read."""
        self._read.append(text)

    def space(self) -> Parse[None]:
        """White space, or none."""
        self.add((yield from self._chars.space()))

    def colon(self) -> Parse[bool]:
        """A colon within white space."""
        yield from self.space()
        if (yield from self._chars.literal(":")) is None:
            return False
        self.add(":")
        yield from self.space()
        return True

    def string(self) -> Parse[str | None]:
        """A string, decoded. Characters that JSON wants escaped are taken as they are."""
        raw = yield from self._quoted()
        return None if raw is None else _decoded(raw)

    def value(self) -> Parse[str | None]:
        """Any value, as it is written. Of an object or a list only the brackets are looked at."""
        character = yield from self._chars.next()
        self._chars.put_back(character)
        if character == '"':
            return (yield from self._quoted())
        start = len(self._read)
        depth = 0
        while True:
            character = yield from self._chars.next()
            if character == END or (depth == 0 and character in _DELIMITERS):
                self._chars.put_back(character)
                return None if depth or len(self._read) == start else "".join(self._read[start:])
            if character == '"':
                self._chars.put_back(character)
                if depth == 0 or (yield from self._quoted()) is None:
                    return None
                continue
            self.add(character)
            depth += (character in "{[") - (character in "}]")
            if depth == 0 and character in "}]":
                return "".join(self._read[start:])

    def arguments(self) -> Parse[str | None]:
        """Arguments as JSON text: those of an object, of a text that has one in it, or none for null."""
        raw = yield from self.value()
        if raw is None or raw.startswith("{"):
            return raw
        if raw.startswith('"'):
            text = _decoded(raw)
            return text if text is not None and is_object(text) else None
        return "{}" if raw == "null" else None

    def call(self, events: Events, name: str) -> Parse[bool]:
        """The call of this name, with the arguments that come next; False where nothing that can be arguments does."""
        if (yield from self._chars.literal("{")) is None:
            given = yield from self.arguments()
            if given is not None:
                events.call(name, given)
            return given is not None
        events.begin(name)
        yield from raw_object(self._chars, events)
        return True

    def _quoted(self) -> Parse[str | None]:
        """A string as it is written."""
        if (yield from self._chars.literal('"')) is None:
            return None
        start = len(self._read)
        self.add('"')
        while (character := (yield from self._chars.next())) != END:
            self.add(character)
            if character == "\\":
                self.add((yield from self._chars.next()))
            elif character == '"':
                return "".join(self._read[start:])
        return None


def _decoded(raw: str) -> str | None:
    """The text of a JSON string; None where an escape is none."""
    try:
        text = json.loads(raw, strict=False)
    except ValueError:
        return None
    return text if isinstance(text, str) else None
