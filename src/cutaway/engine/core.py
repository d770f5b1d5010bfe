"""The engine's core: the loop's one step. Schedule, copy pages, forward, sample, report.

In: requests. Out: their events, and blocks given back. One thread at a time; who waits for whom is not its business.
"""

import logging
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from cutaway.engine.backlog import Backlog
from cutaway.engine.generation import Generation
from cutaway.engine.guarded_look import GuardedLook
from cutaway.engine.observer import Observer
from cutaway.engine.open_steps import OpenShare, watching
from cutaway.engine.outputs import FinishReason
from cutaway.engine.results import PieceResult, find_results, take_result
from cutaway.engine.step_batch import ScratchPage, StepBatches
from cutaway.engine.step_outcome import Computed, StepOutcome
from cutaway.engine.steps import Look, Steps, TimedSteps
from cutaway.engine.tap_limits import TapLimits, check_room
from cutaway.engine.totals import Totals
from cutaway.errors import CutawayError, QueueFullError
from cutaway.ops.cpu.threads import ThreadTeam
from cutaway.sampling.rows import SamplerRoom
from cutaway.scheduler.request import Request
from cutaway.scheduler.scheduler import Scheduler
from cutaway.scheduler.step import Step

LOG: Final = logging.getLogger("cutaway.engine")
LOST: Final = "the engine has lost track of its memory: {}. Load the model again."
Answer = TypeVar("Answer")


class EngineCore:
    """Owns the scheduler and its blocks, the runner, and the sampler's room.

    Invariant between steps: a request that was let in is in ``_generations`` if and only if it has not ended, and all
    that the scheduler knows belongs to one of these. What can't be brought back to that breaks the engine: everyone is
    told, and nobody is let in any more.
    """

    def __init__(
        self,
        runner: Steps,
        scheduler: Scheduler,
        scratch_page: ScratchPage | None = None,
        clock: Callable[[], float] = time.perf_counter,
        team: ThreadTeam | None = None,
        taps: TapLimits = TapLimits(),  # noqa: B008  (immutable)
        observers: Sequence[Observer] = (),
    ) -> None:
        """scratch_page: for the pads of static batches. clock: in seconds; deadlines are on it. team: samples the rows
        of a step; default, this thread alone. taps: what they may cost. observers: are told of all that happens.
        """
        self.runner, self.scheduler, self.clock = runner, scheduler, clock
        self.totals = Totals()
        self.observers = [*observers]
        self._batches, self._open_batches = StepBatches(scratch_page), StepBatches()
        self._taps, self._share = taps, OpenShare(taps.share)
        self._team = ThreadTeam(1) if team is None else team
        self._timed_runner = runner if isinstance(runner, TimedSteps) else None
        self._sampler = SamplerRoom(runner.vocab_size, self._team.size)
        self._generations: dict[str, Generation] = {}  # by their ids
        self._backlog = Backlog()
        self._num_steps = runner.num_steps  # of the runner, after our last one
        self._broken: BaseException | None = None

    @property
    def broken(self) -> bool:
        """Whether it takes no request any more, since it has lost track of its memory."""
        return self._broken is not None

    @property
    def has_work(self) -> bool:
        """Whether a request has not ended."""
        return bool(self._generations) or self._backlog.first() is not None

    def hold(self, generations: Sequence[Generation]) -> None:
        """Keep the requests, and submit each when the queue has a place for it. The sink of one that can never run is
        told why.
        """
        if self._broken is not None:
            raise CutawayError(LOST.format(self._broken))
        now = self.clock()
        for generation in generations:
            generation.submitted = now
        self._backlog.add(generations)

    def _refill(self) -> None:
        """Submit those of the backlog that the queue has places for, up to one that needs what is not free now."""
        while (generation := self._backlog.first()) is not None:
            asked = generation.asked
            if not self.scheduler.has_place_for_bulk(asked.params.n, len(asked.prompt_ids)):
                return
            try:
                self.submit(generation, bulk=True)
            except QueueFullError:
                return
            except Exception as error:
                generation.fail(error)
                self._tell_end(generation, "error")
            self._backlog.take()

    def submit(self, generation: Generation, *, bulk: bool = False) -> None:
        """Let the request wait for its turn, with all its choices. bulk: it comes from the backlog.

        One whose deadline has passed while it was on its way ends at once. Raises InvalidRequestError; CapacityError if
        it can never run; QueueFullError if there is no place for now.
        """
        if self._broken is not None:
            raise CutawayError(LOST.format(self._broken))
        asked = generation.asked
        now, before = self.clock(), generation.submitted
        generation.submitted = now if before is None else before
        if generation.is_late(now):
            self._ask(lambda each: each.admitted(generation))
            self._cut(generation, "deadline", now)
            return
        watched = generation.watched
        try:
            if watched is not None:
                check_room(watched, (each.watched for each in self._generations.values()), self._taps)
            self.scheduler.submit(
                Request(
                    id=generation.request_id,
                    ids=asked.prompt_ids,
                    max_new_tokens=asked.max_new_tokens,
                    num_choices=asked.params.n,
                    priority=generation.priority,
                    arrival=now,
                    deadline=generation.deadline,
                    salt=generation.salt,
                    scores_prompt=asked.params.prompt_logprobs is not None
                    or (watched is not None and watched.watch.needs_all_logits),
                    hidden=None if asked.pooling is None else "last" if asked.pooling == "last" else "all",
                    is_open=watched is not None,
                    bulk=bulk,
                    reads_cache=generation.reads_cache and not any(each.opens_steps for each in self.observers),
                )
            )
        except BaseException:
            generation.submitted = before
            raise
        self._generations[generation.request_id] = generation
        self._ask(lambda each: each.admitted(generation))

    def abort(self, generation: Generation, reason: FinishReason = "abort") -> None:
        """End the request; nothing happens if it has ended, or was never submitted."""
        if generation.ended or generation.submitted is None:
            return
        self._cut(generation, reason, self.clock())
        self._drop(generation, reason)

    def _cut(self, generation: Generation, reason: FinishReason, now: float) -> None:
        """End what of it has not ended, and tell it."""
        try:
            generation.cut(reason, now)
        except Exception as error:
            generation.fail(error)
        self._tell_end(generation, reason)

    def fail(self, error: BaseException) -> None:
        """End all requests with this error. All are told before the first gives its blocks back."""
        ending = self.generations()
        for generation in ending:
            generation.fail(error)
            self._tell_end(generation)
        try:
            for generation in ending:
                self._drop(generation)
        except BaseException as lost:
            self._break(lost)

    def generations(self) -> list[Generation]:
        """Those that have not ended."""
        return [*self._generations.values(), *self._backlog]

    def step(self) -> None:
        """Advance everyone whose turn it is. If it raises, nothing of the step counts, and it may be tried again; or
        the engine broke by it, and all requests have ended with the error.

        Somebody may open the hood and run steps of his own on the same runner, which write to its pages. Then nothing
        in them is relied upon any more, and all that is needed is computed again.
        """
        step: Step | None = None
        try:
            self._abort_overdue()
            if self.runner.num_steps != self._num_steps:
                self._forget_kv()
            step = self.scheduler.schedule(self.clock(), self._refill, opens=self._share.may_open)
            if step.num_tokens == 0:
                return
            started = self.clock()
            computed = self._compute(step)
            if self.runner.num_steps > self._num_steps + 1:  # a step of others, anywhere between forward and sampler
                self.scheduler.cancel(step)
                self._forget_kv()
                return
            self.totals.count(step, self.scheduler)
            seconds = self.clock() - started
            self._share.count(step, seconds)
        except BaseException:
            self._undo(step)
            raise
        self._num_steps = self.runner.num_steps
        try:
            self._report(step, computed, started, seconds)
        except BaseException as error:  # some requests have their tokens, and the scheduler may not know it
            self._break(error)
            raise

    def _abort_overdue(self) -> None:
        now = self.clock()
        while (late := self.scheduler.overdue(now)) is not None:
            self.abort(self._generations[late], "deadline")
        for generation in self._backlog.take_overdue(now):
            self.abort(generation, "deadline")

    def _forget_kv(self) -> None:
        """The pages may hold anything."""
        self.scheduler.forget_kv("a step outside of the engine has written to the pool")
        self._num_steps = self.runner.num_steps

    def _compute(self, step: Step) -> Computed:
        """From the pages to the batch and the samples; no request is changed, or told."""
        for source, target in step.copies:
            self.runner.copy_page(source, target)
        own = self._ask(lambda each: [(each, GuardedLook(look)) for look in each.looks(step)])
        observing = [each for pairs in own for each in pairs]
        looks: list[Look] = [look for _, look in observing]
        batch = (self._open_batches if step.is_open else self._batches).batch_of(step)
        if step.is_open:
            looks += watching(step, self._generations, batch)
        clocks = None
        if looks:  # then it has no clocks
            logits = self.runner.step_tapped(batch, looks)
            for observer, look in observing:
                if look.error is not None:
                    self._dismiss(observer, look.error)
        elif self._timed_runner is not None and any(self._ask(lambda each: each.wants_clocks(step))):
            clocks = self._timed_runner.step_timed(batch)
            logits = self._timed_runner.logits_of(batch)
        else:
            logits = self.runner.step(batch)
        hidden = self.runner.hidden_states(batch) if step.wants_hidden else None
        are_scored = any(each.wants_logprobs for each in self.observers)
        results = find_results(step, self._generations, logits, hidden, self._team, self._sampler, are_scored)
        return Computed(batch, results, bool(looks), clocks)

    def _undo(self, step: Step | None) -> None:
        """The step failed, maybe while it was planned. What can't be undone breaks the engine."""
        try:
            if step is not None:
                self._num_steps += self.runner.num_steps == self._num_steps + 1  # ours
                if step.num_tokens:
                    self.scheduler.cancel(step)
            self.check()
        except BaseException as lost:
            self._break(lost)

    def _report(self, step: Step, computed: Computed, started: float, seconds: float) -> None:
        """Give the requests what was found, the scheduler the tokens, and the sinks their events.

        A request that fails is dropped before the step is complete: its tokens don't count.
        """
        now, results = self.clock(), computed.results
        served = list(dict.fromkeys(result.generation for result in results))
        for result in results:
            if result.generation.begun is None:
                result.generation.begin(started, result.piece.start)
        taken = [take_result(each, now, *self._kv_positions(each)) for each in results]
        if self.observers:
            outcome = StepOutcome(step, computed, taken, (started, seconds), self.runner, self.scheduler)
            self._ask(lambda each: each.stepped(outcome))
        for generation in served:
            if generation.failed:
                self._tell_end(generation)
                self._drop(generation)
        self.scheduler.complete(step, [each.tokens for each in taken])
        for generation in served:
            if not generation.ended:
                generation.flush()
            if generation.ended:  # by the step, or since its sink has raised
                self._tell_end(generation)
                self._drop(generation)

    def _kv_positions(self, result: PieceResult) -> tuple[int, int]:
        """In the blocks of a piece's sequence, and how many of them hold keys and values after the step."""
        if not self.scheduler.keeps_kv:
            return 0, 0
        piece = result.piece
        return self.scheduler.reserved(piece.sequence), piece.start + piece.num_tokens

    def _drop(self, generation: Generation, reason: str = "abort") -> None:
        """The request has ended: the scheduler and the core forget it. reason: for the log."""
        if self._generations.pop(generation.request_id, None) is not None:
            self.scheduler.abort(generation.request_id, reason)
        if not self._generations:
            self._forget_batches()

    def _break(self, lost: BaseException) -> None:
        """Nobody knows any more who owns which block: all end with an error, and no request is let in."""
        LOG.error(LOST.format(lost), exc_info=lost)
        self._broken = self._broken or lost
        error = CutawayError(LOST.format(lost))
        error.__cause__ = lost
        for generation in self.generations():
            generation.fail(error)
            self._tell_end(generation)
        self._generations.clear()
        self._forget_batches()

    def _forget_batches(self) -> None:
        self._batches.forget()
        self._open_batches.forget()

    def _tell_end(self, generation: Generation, reason: str = "end") -> None:
        """The request has ended: tell the observers, then whoever asked, so that what they say goes with the last
        event. Once: again, it does nothing.
        """
        if generation.settled:
            return
        generation.settled = True
        reason = "error" if generation.failed else reason
        try:
            for said in self._ask(lambda each: each.ended(generation, reason)):
                if said is not None:
                    generation.summary = {**(generation.summary or {}), **said}
        finally:  # an observer may even end its thread: who asked must not wait for ever
            generation.flush()

    def _ask(self, question: Callable[[Observer], Answer]) -> list[Answer]:
        """What the observers answer. One that fails is no reason for the requests to fail: it is asked no more."""
        answers = []
        for observer in [*self.observers]:
            try:
                answers.append(question(observer))
            except Exception as error:
                self._dismiss(observer, error)
        return answers

    def _dismiss(self, observer: Observer, error: Exception) -> None:
        """It has failed."""
        self.observers = [each for each in self.observers if each is not observer]
        with suppress(UserWarning):  # where warnings are made errors
            warnings.warn(f"an observer of the engine failed and hears no more: {error!r}", stacklevel=3)

    def rest(self) -> None:
        """Nothing is left to do: check that nothing is lost. If something is, no further request is let in."""
        if self._broken is None:
            try:
                self.check()
            except Exception as lost:
                self._break(lost)

    def check(self) -> None:
        """Raise RuntimeError if blocks or requests are not where they belong; whatever it stumbles over means the same.
        For tests, the idle engine, and steps that failed.
        """
        self.scheduler.check()
        known = {sequence.request.id for sequence in self.scheduler.sequences()}
        if known != set(self._generations):
            raise RuntimeError("the scheduler's requests are not those that have not ended")
