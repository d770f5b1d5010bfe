"""The parts of an answer in the order in which they become certain.

In: texts from a parser, as short as it likes. Out: events; those of one piece of text are joined where they can be.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


class Reasoning(NamedTuple):
    """The model's thoughts, a piece of them."""

    text: str


class Content(NamedTuple):
    """What the user is to read, a piece of it."""

    text: str


class CallBegin(NamedTuple):
    """A call of a tool that the request has. All that follows until its end belongs to it."""

    call: int  # of the answer's, from 0
    name: str


class CallArguments(NamedTuple):
    """A piece of the call's arguments: JSON text as the model wrote it, which is JSON if the model's is."""

    call: int
    text: str


class CallEnd(NamedTuple):
    """The arguments are whole: their braces are closed."""

    call: int


Event: TypeAlias = Reasoning | Content | CallBegin | CallArguments | CallEnd


@dataclass
class Events:
    """What a parser has found and nobody has taken yet."""

    names: frozenset[str]  # of the tools that may be called
    most_calls: int | None = None  # what looks like a call beyond that is content
    num_calls: int = 0
    _found: list[Event] = field(default_factory=list)

    def reasoning(self, text: str) -> None:
        """Add reasoning."""
        self._add(Reasoning(text))

    def content(self, text: str) -> None:
        """Add content."""
        self._add(Content(text))

    def may_call(self, name: object, further: int = 0) -> bool:
        """Whether a call of this function may begin, when so many further ones have."""
        return name in self.names and (self.most_calls is None or self.num_calls + further < self.most_calls)

    def begin(self, name: str) -> None:
        """A call begins."""
        self._found.append(CallBegin(self.num_calls, name))
        self.num_calls += 1

    def arguments(self, text: str) -> None:
        """Add to the arguments of the call that has begun last."""
        self._add(CallArguments(self.num_calls - 1, text))

    def end(self) -> None:
        """That call is whole."""
        self._found.append(CallEnd(self.num_calls - 1))

    def call(self, name: str, arguments: str) -> None:
        """A whole call."""
        self.begin(name)
        self.arguments(arguments)
        self.end()

    def take(self) -> list[Event]:
        """What has come since the last time, neighbours of one kind joined."""
        found, self._found = self._found, []
        joined: list[Event] = []
        texts: list[str] = []
        for event in found:
            if isinstance(event, Reasoning | Content | CallArguments):
                if joined and type(joined[-1]) is type(event):
                    texts.append(event.text)
                    continue
                _close(joined, texts)
                texts = [event.text]
            else:
                _close(joined, texts)
                texts = []
            joined.append(event)
        _close(joined, texts)
        return joined

    def _add(self, event: Reasoning | Content | CallArguments) -> None:
        if event.text:
            self._found.append(event)


def _close(joined: list[Event], texts: list[str]) -> None:
    """Give the last event all of its texts."""
    if len(texts) > 1:
        last = joined[-1]
        assert isinstance(last, Reasoning | Content | CallArguments)
        joined[-1] = last._replace(text="".join(texts))
