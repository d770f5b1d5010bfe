"""The engine's core: the loop's one step. Schedule, copy pages, forward, sample, report.

In: requests. Out: their events, and blocks given back. One thread at a time; who waits for whom is not its business.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from cutaway.engine.generation import Event, Generation
from cutaway.engine.outputs import FinishReason
from cutaway.engine.step_batch import ScratchPage, batch_of
from cutaway.engine.steps import Steps
from cutaway.engine.totals import Totals
from cutaway.errors import CutawayError, InvalidRequestError, QueueFullError
from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.threads import float_environment
from cutaway.sampling.row import SamplerScratch
from cutaway.scheduler.request import Request
from cutaway.scheduler.scheduler import Scheduler
from cutaway.scheduler.step import Sampled, Step, StepPiece


class Part(NamedTuple):
    """As many choices of a request as can run together: what the scheduler calls a request."""

    generation: Generation
    first: int  # choice
    num_choices: int

    @property
    def name(self) -> str:
        """The scheduler's id for it."""
        return self.generation.request_id if self.first == 0 else f"{self.generation.request_id}+{self.first}"


class EngineCore:
    """Owns the scheduler and its blocks, the runner, and the sampler's scratch.

    Invariant between steps: a request is in ``_parts`` if and only if it has not ended, and all that the scheduler
    knows belongs to one of these.
    """

    def __init__(
        self,
        runner: Steps,
        scheduler: Scheduler,
        scratch_page: ScratchPage | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """scratch_page: for the pads of static batches. clock: in seconds; deadlines are on it."""
        self.runner, self.scheduler, self.clock = runner, scheduler, clock
        self.totals = Totals()
        self._scratch_page = scratch_page
        self._sampler = SamplerScratch.allocate(runner.vocab_size)
        self._parts: dict[str, Part] = {}  # in the scheduler, by its id
        self._num_steps = runner.num_steps  # of the runner, after our last one
        self._broken: RuntimeError | None = None
        self._later: deque[Part] = deque()  # of requests in ``_parts``, for which the queue had no place yet

    @property
    def has_work(self) -> bool:
        """Whether a request has not ended."""
        return self.scheduler.has_work or bool(self._later)

    def submit(self, generation: Generation) -> None:
        """Let the request wait for its turn.

        One whose deadline has passed while it was on its way ends at once. Raises InvalidRequestError; CapacityError if
        it can never run; QueueFullError if there is no place for now.
        """
        if self._broken is not None:
            raise CutawayError(f"the engine has lost track of its memory: {self._broken}. Load the model again.")
        most = self.scheduler.limits.max_sequences
        n = generation.asked.params.n
        parts = [Part(generation, first, min(most, n - first)) for first in range(0, n, most)]
        generation.submitted = now = self.clock()
        if generation.deadline is not None and generation.deadline <= now:
            generation.cut("deadline", now)
            return
        try:
            self._submit(parts[0])
        except CutawayError:
            generation.submitted = None
            raise
        self._later += parts[1:]

    def _submit(self, part: Part) -> None:
        generation = part.generation
        assert generation.submitted is not None
        asked = generation.asked
        self.scheduler.submit(
            Request(
                id=part.name,
                ids=tuple(asked.prompt_ids),
                max_new_tokens=asked.max_new_tokens,
                num_choices=part.num_choices,
                priority=generation.priority,
                arrival=generation.submitted,
                deadline=generation.deadline,
                salt=generation.salt,
                scores_prompt=asked.params.prompt_logprobs is not None and part.first == 0,
            )
        )
        self._parts[part.name] = part

    def abort(self, generation: Generation, reason: FinishReason = "abort") -> None:
        """End the request; nothing happens if it has ended, or was never submitted."""
        if not generation.ended and generation.submitted is not None:
            generation.cut(reason, self.clock())
            self._drop(generation)

    def fail(self, error: BaseException) -> None:
        """End all requests with this error."""
        for generation in self.generations():
            generation.fail(error)
            self._drop(generation)

    def generations(self) -> list[Generation]:
        """Those that have not ended."""
        return list(dict.fromkeys(part.generation for part in (*self._parts.values(), *self._later)))

    def step(self) -> None:
        """Advance everyone whose turn it is. If it raises, nothing of the step counts, and it may be tried again.

        Somebody may open the hood and run steps of his own on the same runner, which write to its pages. Then nothing
        in them is relied upon any more, and all that is needed is computed again.
        """
        self._submit_later()
        if self.runner.num_steps != self._num_steps:
            self._forget_kv()
        step = self.scheduler.schedule(self.clock())
        for name in step.expired:
            if name in self._parts:  # else another part of its request has taken it along
                self.abort(self._parts[name].generation, "deadline")
        if step.num_tokens == 0:
            return
        self._begin(step)
        try:
            for source, target in step.copies:
                self.runner.copy_page(source, target)
            logits = self.runner.step(batch_of(step, self._scratch_page))
        except BaseException:
            self.scheduler.cancel(step)
            self._num_steps += self.runner.num_steps == self._num_steps + 1  # ours, which failed
            raise
        if self.runner.num_steps > self._num_steps + 1:
            self.scheduler.cancel(step)
            self._forget_kv()
            return
        self._num_steps = self.runner.num_steps
        sampled, served = self._sample(step, logits)
        self.totals.count(step, self.scheduler)
        self.scheduler.complete(step, sampled)
        for generation in served:
            generation.flush()
            if generation.ended:
                self._drop(generation)

    def _forget_kv(self) -> None:
        """The pages may hold anything."""
        self.scheduler.forget_kv("a step outside of the engine has written to the pool")
        self._num_steps = self.runner.num_steps

    def _begin(self, step: Step) -> None:
        """For some requests, it is the first step."""
        now = self.clock()
        for piece in step.pieces:
            generation = self._parts[piece.sequence.request.id].generation
            if generation.begun is None:
                generation.begin(now, piece.start)

    def _submit_later(self) -> None:
        """The choices of requests that have more than can run together, when there is place for them."""
        while self._later:
            part = self._later[0]
            try:
                self._submit(part)
            except QueueFullError:
                return
            except InvalidRequestError:  # its deadline has passed
                self.abort(part.generation, "deadline")
            else:
                self._later.popleft()

    def _drop(self, generation: Generation) -> None:
        """The request has ended: the scheduler and the core forget it."""
        most = self.scheduler.limits.max_sequences
        for first in range(0, generation.asked.params.n, most):
            name = Part(generation, first, most).name
            if self._parts.pop(name, None) is not None:
                self.scheduler.abort(name)
        if any(part.generation is generation for part in self._later):
            self._later = deque(part for part in self._later if part.generation is not generation)

    def _sample(self, step: Step, logits: Floats) -> tuple[list[list[Sampled]], list[Generation]]:
        """A token for each choice of each piece, and the requests that were served; logits: [O, V].

        What goes wrong with one request ends it alone: its sequences are aborted, and their tokens here don't count.
        """
        now = self.clock()
        sampled: list[list[Sampled]] = []
        served: dict[Generation, None] = {}
        row = 0
        with float_environment():
            for piece in step.pieces:
                part = self._parts[piece.sequence.request.id]
                rows = logits[row : row + piece.num_outputs]
                row += piece.num_outputs
                served[part.generation] = None
                tokens = [Sampled(0)] * len(piece.choices)
                if not part.generation.ended:
                    try:
                        tokens = self._sample_piece(piece, part, rows, now)
                    except Exception as error:
                        part.generation.fail(error)
                sampled.append(tokens)
        for generation in served:
            if generation.failed:
                self._drop(generation)
        return sampled, list(served)

    def _sample_piece(self, piece: StepPiece, part: Part, rows: Floats, now: float) -> list[Sampled]:
        generation, sequence = part.generation, piece.sequence
        if sequence.scores_prompt:
            generation.score(piece.start, rows, self._sampler)
        reserved, used = 0, 0
        if self.scheduler.keeps_kv:
            reserved, used = self.scheduler.reserved(sequence), piece.start + piece.num_tokens
        tokens = []
        for choice in piece.choices:
            delta = generation.sample(part.first + choice, rows[-1], self._sampler)
            generation.tell(Event(delta, now, reserved, used))
            tokens.append(Sampled(delta.token_ids[0], delta.finish_reason == "stop"))
        return tokens

    def rest(self) -> None:
        """Nothing is left to do: check that nothing is lost. If something is, no further request is let in."""
        try:
            self.check()
        except RuntimeError as error:
            self._broken = error

    def check(self) -> None:
        """Raise RuntimeError if blocks or requests are not where they belong. For tests and the idle engine."""
        self.scheduler.check()
