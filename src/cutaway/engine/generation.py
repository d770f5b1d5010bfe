"""A request while the engine computes it: its choices, the scores of its prompt, and whom to tell.

In: rows of logits. Out: events, handed to a sink: one for each token of each choice.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from cutaway.engine.choice import Asked, Choice
from cutaway.engine.outputs import Delta, FinishReason
from cutaway.ops.cpu.arrays import Floats
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import SampleResult, score_row
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

    ``begun``, ``num_cached_tokens`` and ``scores`` are settled before the first event is handed over.
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
    ) -> None:
        """sink: is called by the engine's thread. deadline: on the engine's clock. salt: of the prefix cache. whole:
        hand all events over at the end, together.
        """
        self.request_id, self.asked = request_id, asked
        self.priority, self.deadline, self.salt = priority, deadline, salt
        self.sink, self.whole = sink, whole
        self.submitted: float | None = None
        self.begun: float | None = None  # when its first step was scheduled
        self.num_cached_tokens = 0  # of the prompt, at that time
        self.scores: dict[int, SampleResult] = {}  # of the prompt's tokens but the first, by position
        self.ended = False
        self.failed = False  # ended by an error
        self._tokenizer = tokenizer
        self._choices: dict[int, Choice] = {}  # those that run
        self._finished: set[int] = set()
        self._events: list[Event] = []

    def begin(self, now: float, num_cached_tokens: int) -> None:
        """Its first step is being computed."""
        self.begun, self.num_cached_tokens = now, num_cached_tokens

    def score(self, start: int, logits: Floats, scratch: SamplerScratch) -> None:
        """Score the prompt's tokens that follow positions start, start + 1, …, of which ``logits`` [n, V] are."""
        ids, count = self.asked.prompt_ids, self.asked.params.prompt_logprobs
        assert count is not None
        for position, row in enumerate(logits, start + 1):
            if position < len(ids) and position not in self.scores:
                self.scores[position] = score_row(row, ids[position], count, scratch)

    def sample(self, index: int, logits: Floats, scratch: SamplerScratch) -> Delta:
        """The next token of a choice; logits: [V]."""
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = Choice(index, self.asked, self._tokenizer)
        delta = choice.sample(logits, scratch)
        if delta.finish_reason is not None:
            del self._choices[index]
            self._finished.add(index)
            self.ended = len(self._finished) == self.asked.params.n
        return delta

    def tell(self, event: Event) -> None:
        """Add an event, to be handed over by ``flush``."""
        self._events.append(event)

    def flush(self) -> None:
        """Hand the events over, if it is time."""
        if self._events and (self.ended or not self.whole):
            events, self._events = self._events, []
            self.sink(events)

    def cut(self, reason: FinishReason, now: float) -> None:
        """End every choice that has not ended, and hand the events over."""
        if self.ended:
            return
        self.ended = True
        for index in sorted(set(range(self.asked.params.n)) - self._finished):
            choice = self._choices.get(index) or Choice(index, self.asked, self._tokenizer)
            self.tell(Event(choice.cut(reason), now, 0, 0))
        self.flush()

    def fail(self, error: BaseException) -> None:
        """End it with an error, after what came before."""
        if not self.ended:
            self.ended = self.failed = True
            self.flush()
            self.sink(error)
