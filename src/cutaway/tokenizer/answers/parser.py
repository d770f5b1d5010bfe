"""An answer as it comes, told apart: the parser that belongs to a format.

In: pieces of the answer's text. Out: events. Where the pieces are cut makes no difference to the events but for the
pieces of text in them. No text is lost: what is no call is content. Of a call that the format spoils behind its
arguments, the arguments stay.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final

from cutaway.tokenizer.answers.characters import END, Characters, Parse
from cutaway.tokenizer.answers.events import Event, Events
from cutaway.tokenizer.answers.formats import AnswerFormat
from cutaway.tokenizer.answers.json_call import bare_calls
from cutaway.tokenizer.answers.marked import hermes_answer, mistral_answer
from cutaway.tokenizer.answers.reasoning import reasoning
from cutaway.tokenizer.answers.tool_code import tool_code_answer

PARSERS: Final[Mapping[str, Callable[[Characters, Events], Parse[None]]]] = MappingProxyType(
    {
        "hermes": hermes_answer,
        "json": bare_calls,
        "mistral": mistral_answer,
        "mistral_named": mistral_answer,
        "tool_code": tool_code_answer,
    }
)
"""By the names of ``formats.CALLS``."""


class AnswerParser:
    """The parser of one answer.

    Args:
        form: of the model.
        tools: the names of those that may be called; without any, nothing is a call.
        most_calls: so many are calls, and what comes then is content; None: all are.
        within_reasoning: the prompt ends within reasoning.
    """

    def __init__(
        self,
        form: AnswerFormat,
        tools: Collection[str] = (),
        *,
        most_calls: int | None = None,
        within_reasoning: bool = False,
    ) -> None:
        self._events = Events(frozenset(tools), most_calls)
        self._parse = _parse(form, Characters(), self._events, within_reasoning)
        self._ended = False
        self._next = next(self._parse, None)

    def feed(self, text: str) -> list[Event]:
        """What became certain with this piece."""
        for character in text:
            self._parse.send(character)
        return self._events.take()

    def finish(self) -> list[Event]:
        """What is certain now that no more comes."""
        while not self._ended:
            try:
                self._parse.send(END)
            except StopIteration:
                self._ended = True
        return self._events.take()


def _parse(form: AnswerFormat, chars: Characters, events: Events, within_reasoning: bool) -> Parse[None]:
    if form.reasoning is not None:
        yield from reasoning(form.reasoning, chars, events, is_open=within_reasoning)
    if form.calls is not None and events.names:
        yield from PARSERS[form.calls](chars, events)
    while (character := (yield from chars.next())) != END:
        events.content(character)
