"""Calls written in Python within a fence, as Gemma's: ```` ```tool_code ````, ``f(a=1, b="x")``, ```` ``` ````.

In: characters. Out: events, those of a call once its block is whole; a block that isn't calls alone is content.
Source: Gemma, "Function calling"; the values are literals of Python and JSON. No Python is run, nor compiled.
"""

import json
import re
from typing import Any, Final, NamedTuple

from cutaway.tokenizer.answers.characters import END, Characters, Parse
from cutaway.tokenizer.answers.events import Events
from cutaway.tokenizer.answers.marked import until

FENCE: Final = ("```tool_code", "```")
MOST_DEPTH: Final = 64

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|' + r"'(?:[^'\\\n]|\\.)*'", re.DOTALL)
_SPACE = re.compile(r"\s*")
_CONSTANTS: Final = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}


def tool_code_answer(chars: Characters, events: Events) -> Parse[None]:
    """Content with blocks of calls in it."""
    begin, end = FENCE
    while (before := (yield from until(begin, chars, events))) is not None:
        block: list[str] = []
        while (closed := (yield from chars.literal(end))) is None:
            character = yield from chars.next()
            if character == END:
                break
            block.append(character)
        text = "".join(block)
        calls = read_calls(text) if closed else None
        if not calls or not all(events.may_call(call.name, number) for number, call in enumerate(calls)):
            events.content(before + begin + text + (closed or ""))
            continue
        for call in calls:
            events.call(call.name, call.arguments)


class PythonCall(NamedTuple):
    """A call, its arguments as JSON text: an object."""

    name: str
    arguments: str


def read_calls(text: str) -> list[PythonCall] | None:
    """The calls of a text: ``f(a=1)``, each in a line or divided by ``;``, within ``print(…)`` or a list or not.

    None for anything else.
    """
    try:
        return _Reader(text).calls()
    except (ValueError, RecursionError):
        return None


class _Reader:
    """Reads a text from left to right; ValueError where it isn't what is read."""

    def __init__(self, text: str) -> None:
        self._text, self._place = text, 0

    def calls(self) -> list[PythonCall]:
        found: list[PythonCall] = []
        while self._after_space() < len(self._text):
            if self._take("["):
                while not self._take("]"):
                    found.append(self._printed())
                    if not self._take(",") and not self._peek("]"):
                        raise ValueError
            else:
                found.append(self._printed())
            self._take(";")
        return found

    def _printed(self) -> PythonCall:
        """A call, or ``print`` of one."""
        start = self._after_space()
        if self._word() == "print" and self._take("("):
            name = self._place
            if not self._peek(")") and _NAME.match(self._text, self._after_space()):
                self._place = name
                call = self._call()
                self._expect(")")
                return call
        self._place = start
        return self._call()

    def _call(self) -> PythonCall:
        name, arguments = self._word(), dict[str, Any]()
        self._expect("(")
        while not self._take(")"):
            key = self._word()
            self._expect("=")
            if key in arguments:
                raise ValueError
            arguments[key] = self._value(0)
            if not self._take(",") and not self._peek(")"):
                raise ValueError
        return PythonCall(name, json.dumps(arguments, ensure_ascii=False, allow_nan=False))

    def _value(self, depth: int) -> Any:
        """A literal, as Python writes it: text, number, constant, list, tuple or dictionary."""
        if depth > MOST_DEPTH:
            raise ValueError
        self._after_space()
        if self._take("["):
            return self._items("]", depth)
        if self._take("("):
            return self._items(")", depth)
        if self._take("{"):
            return self._mapping(depth)
        if (string := self._match(_STRING)) is not None:
            return _string(string)
        if (number := self._match(_NUMBER)) is not None:
            return float(number) if any(character in ".eE" for character in number) else int(number)
        word = self._word()
        if word not in _CONSTANTS:
            raise ValueError
        return _CONSTANTS[word]

    def _items(self, end: str, depth: int) -> list[Any]:
        found: list[Any] = []
        while not self._take(end):
            found.append(self._value(depth + 1))
            if not self._take(",") and not self._peek(end):
                raise ValueError
        return found

    def _mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self._take("}"):
            self._after_space()
            key = self._match(_STRING)
            if key is None:
                raise ValueError
            self._expect(":")
            found[_string(key)] = self._value(depth + 1)
            if not self._take(",") and not self._peek("}"):
                raise ValueError
        return found

    def _after_space(self) -> int:
        self._match(_SPACE)
        return self._place

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self._text, self._place)
        if found is None:
            return None
        self._place = found.end()
        return found.group()

    def _word(self) -> str:
        self._after_space()
        word = self._match(_NAME)
        if word is None:
            raise ValueError
        return word

    def _peek(self, literal: str) -> bool:
        return self._text.startswith(literal, self._after_space())

    def _take(self, literal: str) -> bool:
        there = self._peek(literal)
        self._place += len(literal) if there else 0
        return there

    def _expect(self, literal: str) -> None:
        if not self._take(literal):
            raise ValueError


_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}


def _string(quoted: str) -> str:
    """The text of a string of Python, with the escapes that it shares with JSON."""

    def character(match: re.Match[str]) -> str:
        escape = match.group(1)
        if len(escape) > 1:
            return chr(int(escape[1:], 16))
        return _ESCAPES.get(escape, escape)

    text = _ESCAPE.sub(character, quoted[1:-1])
    return text.encode("utf-16", "surrogatepass").decode("utf-16")  # two halves of a character become one
