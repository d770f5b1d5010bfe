"""A request while the engine computes it: its choices, the scores of its prompt or its embedding, and whom to tell.

In: rows of logits, or of hidden states. Out: events, handed to a sink: one for each token of each choice.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from cutaway.engine.choice import Asked, Choice
from cutaway.engine.outputs import Delta, FinishReason
from cutaway.engine.pooling import Pool
from cutaway.engine.watched import Watched
from cutaway.ops.cpu.arrays import Floats
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import Row, SampleResult, score_row
from cutaway.tokenizer.tokenizer import Tokenizer


class Event(NamedTuple):
    """What one step brought to one choice."""

    delta: Delta
    seconds: float  # on the engine's clock
    kv_reserved: int  # positions in the sequence's blocks after the step
    kv_used: int  # those of them that hold keys and values


Arrival: TypeAlias = "list[Event] | BaseException"
Sink: TypeAlias = Callable[[Arrival], None]


class Generation:
    """Made by whoever asks; from ``EngineCore.submit`` on only the engine's thread changes it.

    ``begun``, ``num_cached_tokens``, ``scores`` and ``embedding`` are settled before the first event is handed over.
    """

    def __init__(
        self,
        request_id: str,
        asked: Asked,
        tokenizer: Tokenizer,
        sink: Sink,
        *,
        priority: int = 0,
        deadline: float | None = None,
        salt: bytes = b"",
        whole: bool = False,
        watched: Watched | None = None,
        reads_cache: bool = True,
    ) -> None:
        """sink: is called by the engine's thread. deadline: on the engine's clock. salt: of the prefix cache. whole:
        hand all events over at the end, together. watched: who looks at its steps, which are then run open.
        reads_cache: whether its prompt may begin with blocks that were computed before.
        """
        self.request_id, self.asked = request_id, asked
        self.priority, self.deadline, self.salt = priority, deadline, salt
        self.sink, self.whole, self.watched, self.reads_cache = sink, whole, watched, reads_cache
        self.submitted: float | None = None
        self.begun: float | None = None  # when its first step was scheduled
        self.num_cached_tokens = 0  # of the prompt, at that time
        self.scores: dict[int, SampleResult] = {}  # of the prompt's tokens but the first, by position
        self.pool = None if asked.pooling is None else Pool(asked.pooling)  # of an embedding, which is its only choice
        self.embedding: Floats | None = None  # the vector [D] that came of it
        self.summary: dict[str, Any] | None = None  # what observers say of it; settled before the last event
        self.ended = False
        self.failed = False  # ended by an error
        self.settled = False  # its end was told to all
        self._error: BaseException | None = None  # to be handed over
        self._lost = False  # the sink has raised
        self._tokenizer = tokenizer
        self._choices: dict[int, Choice] = {}  # those that run
        self._finished: set[int] = set()
        self._events: list[Event] = []

    def is_late(self, now: float) -> bool:
        """Whether its deadline has passed."""
        return self.deadline is not None and self.deadline <= now

    def begin(self, now: float, num_cached_tokens: int) -> None:
        """Its first step is being computed."""
        self.begun, self.num_cached_tokens = now, num_cached_tokens

    def score(self, start: int, logits: Floats, scratch: SamplerScratch) -> dict[int, SampleResult]:
        """Scores of the prompt's tokens that follow positions start, start + 1, …, of which ``logits`` [n, V] are; of
        those that are not in ``scores`` yet, where they belong.
        """
        ids, count = self.asked.prompt_ids, self.asked.params.prompt_logprobs
        assert count is not None
        return {
            position: score_row(row, ids[position], count, scratch)
            for position, row in enumerate(logits, start + 1)
            if position < len(ids) and position not in self.scores
        }

    def pooled(self) -> Delta:
        """The end of an embedding: all its states are in ``pool``. Raises CutawayError where they have no direction."""
        assert self.pool is not None
        self.embedding = self.pool.vector()
        self._finished.add(0)
        self.ended = True
        return Delta("", [], None, "stop")

    def row(self, index: int, logits: Floats, is_scored: bool) -> Row:
        """By what the next token of a choice is chosen; logits: [V]. is_scored: as in ``Choice.row``."""
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = Choice(index, self.asked, self._tokenizer)
        return choice.row(logits, is_scored)

    def take(self, index: int, sample: SampleResult) -> Delta:
        """The token that was chosen for a choice."""
        delta = self._choices[index].take(sample)
        if delta.finish_reason is not None:
            del self._choices[index]
            self._finished.add(index)
            self.ended = len(self._finished) == self.asked.params.n
        return delta

    def tell(self, event: Event) -> None:
        """Add an event, to be handed over by ``flush``."""
        self._events.append(event)

    def flush(self) -> None:
        """Hand the events over, if it is time, and behind them the error that ended it."""
        if self._events and (self.ended or not self.whole):
            events, self._events = self._events, []
            self._hand_over(events)
        if self._error is not None:
            error, self._error = self._error, None
            self._hand_over(error)

    def _hand_over(self, arrival: Arrival) -> None:
        """A sink that raises ends its request alone: it is told the error once, instead, and then nothing more."""
        if self._lost:
            return
        try:
            self.sink(arrival)
        except Exception as error:
            self._lost = self.ended = self.failed = True
            with suppress(Exception):
                self.sink(error)

    def cut(self, reason: FinishReason, now: float) -> None:
        """End every choice that has not ended; ``flush`` tells it."""
        if self.ended:
            return
        events = []
        for index in sorted(set(range(self.asked.params.n)) - self._finished):
            choice = self._choices.get(index) or Choice(index, self.asked, self._tokenizer)
            events.append(Event(choice.cut(reason), now, 0, 0))
        self.ended = True
        self._events += events

    def fail(self, error: BaseException) -> None:
        """End it with an error; ``flush`` tells it, after what came before. Who takes all events at the end gets the
        error alone: whatever else came first would be taken for the end.
        """
        if not self.ended:
            self.ended = self.failed = True
            self._error = error
            if self.whole:
                self._events.clear()
