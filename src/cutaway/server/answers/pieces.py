"""An answer as it is sent: the events of its parser, and the tokens that they came from.

In: the pieces of the engine's text. Out: the same with events in place of text; or a whole answer. No API's shapes.
"""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from cutaway.engine.outputs import FinishReason, Logprob
from cutaway.server.openai.pieces import pieces
from cutaway.server.work import Work
from cutaway.tokenizer.answers.events import CallArguments, CallBegin, CallEnd, Content, Event, Reasoning
from cutaway.tokenizer.answers.parser import AnswerParser


class AnswerPiece(NamedTuple):
    """What became certain of one choice, and the tokens that became text with it or since the last piece."""

    choice: int
    events: list[Event]  # empty only with a finish reason; without the ends of calls, which what comes next tells
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]]
    finish_reason: FinishReason | None
    ends_with_calls: bool  # with a finish reason: it ended by itself, with calls, and all of them are whole


@dataclass
class Call:
    """A call. ``arguments`` is JSON text as the model wrote it."""

    name: str
    arguments: str = ""
    whole: bool = False


@dataclass
class Answer:
    """What has come of an answer."""

    reasoning: str = ""
    content: str = ""
    calls: list[Call] = field(default_factory=list)

    def add(self, events: list[Event]) -> None:
        """The next events."""
        for event in events:
            if isinstance(event, Reasoning):
                self.reasoning += event.text
            elif isinstance(event, Content):
                self.content += event.text
            elif isinstance(event, CallBegin):
                self.calls.append(Call(event.name))
            elif isinstance(event, CallArguments):
                self.calls[event.call].arguments += event.text
            else:
                self.calls[event.call].whole = True

    def ends_with_calls(self, reason: FinishReason | None) -> bool:
        """Whether the answer, which ended for this reason, is there for its calls: it has some, and they are whole."""
        return reason == "stop" and bool(self.calls) and all(call.whole for call in self.calls)


def read_answer(parser: AnswerParser, text: str) -> Answer:
    """A whole answer."""
    answer = Answer()
    answer.add(parser.feed(text) + parser.finish())
    return answer


@dataclass
class _Choice:
    parser: AnswerParser
    calls: int = 0  # that have begun
    whole: int = 0  # that have ended
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, Logprob]] = field(default_factory=list)


async def answer_pieces(work: Work, parser: Callable[[], AnswerParser]) -> AsyncGenerator[AnswerPiece, None]:
    """The pieces of all choices of the only prompt. parser: makes one for each."""
    choices: dict[int, _Choice] = {}
    async for piece in pieces(work):
        if piece.choice not in choices:
            choices[piece.choice] = _Choice(parser())
        choice = choices[piece.choice]
        events = choice.parser.feed(piece.text)
        if piece.finish_reason is not None:
            events += choice.parser.finish()
        choice.token_ids += piece.token_ids
        choice.logprobs += piece.logprobs
        choice.calls += sum(isinstance(event, CallBegin) for event in events)
        told: list[Event] = [event for event in events if not isinstance(event, CallEnd)]
        choice.whole += len(events) - len(told)
        if told or piece.finish_reason is not None:
            called = piece.finish_reason == "stop" and 0 < choice.calls == choice.whole
            yield AnswerPiece(piece.choice, told, choice.token_ids, choice.logprobs, piece.finish_reason, called)
            choice.token_ids, choice.logprobs = [], []


def call_id(work: str, choice: int, call: int) -> str:
    """The id of a call: the same for the same request, choice and number. work: its name."""
    return "call_" + blake2b(f"{work}/{choice}/{call}".encode(), digest_size=12).hexdigest()
