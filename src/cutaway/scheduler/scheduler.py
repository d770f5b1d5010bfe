"""The scheduler: requests in, steps out.

In: requests, aborts, the clock, and what was sampled in the last step. Out: the next step, and which choices are
complete. It holds no tensors: integers, and the block manager's integers.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Final

from cutaway.errors import CutawayError, InvalidRequestError
from cutaway.memory.block_manager import BlockManager
from cutaway.memory.hash_chain import HashChain
from cutaway.scheduler.admission import check_fits, check_queue, check_request, missing_places
from cutaway.scheduler.decisions import DecisionLog
from cutaway.scheduler.limits import SchedulerLimits
from cutaway.scheduler.ordered_queue import OrderedQueue
from cutaway.scheduler.policy import Policy
from cutaway.scheduler.request import Request
from cutaway.scheduler.retry import RetryEstimate
from cutaway.scheduler.sequence import Rank, SequenceState, State
from cutaway.scheduler.state import SchedulerState, no_refill
from cutaway.scheduler.step import Ended, Sampled, Step, StepPiece
from cutaway.scheduler.waiting_queue import WaitingQueue

DECISIONS: Final = 4096  # that are kept for the audit


class Scheduler:
    """A loop of ``schedule`` and ``complete``, or ``cancel`` if the step failed; ``submit`` and ``abort`` at any time.

    Invariant: between ``schedule`` and ``complete`` no block changes its owner but by an abort, and what an abort gives
    back is allocated by the next ``schedule`` at the earliest. So a step that is being computed never writes into
    another's block.
    """

    def __init__(
        self,
        blocks: BlockManager,
        limits: SchedulerLimits,
        policy: Policy,
        *,
        keeps_kv: bool = True,
        num_decisions: int = DECISIONS,
    ) -> None:
        """keeps_kv: else keys and values are dropped when they have given a token. num_decisions: kept in the log."""
        if not keeps_kv and not policy.frees_at_end:
            raise InvalidRequestError(
                f"a {policy.name} batch reserves its blocks until it ends, and kv is 'none'. Use another kv, or "
                "continuous batching.",
                "kv",
            )
        self.keeps_kv = keeps_kv
        self.log = DecisionLog(num_decisions)
        self.policy = policy
        self.limits = limits
        self._state = SchedulerState(blocks, limits, WaitingQueue(policy.bucket), self.log)
        self._sequences: dict[str, list[SequenceState]] = {}  # of each request that has not ended
        self._deadlines: OrderedQueue[Request] = OrderedQueue()
        self._estimate = RetryEstimate()
        self._in_flight: Step | None = None
        self._serial = 0
        self._now = 0.0

    def reserved(self, sequence: SequenceState) -> int:
        """Positions in the blocks of a running sequence."""
        return len(sequence.blocks.blocks) * self._state.blocks.block_length

    def kv_positions(self) -> tuple[int, int]:
        """Positions in the blocks that are held, and how many of them have keys and values of running sequences, the
        step in flight among them. A block that several hold counts once, but for one that is partly filled.
        """
        blocks, flight = self._state.blocks, self._in_flight
        used = blocks.pool.num_shared * blocks.block_length
        for sequence in self._state.running:
            used += sequence.num_computed - len(sequence.blocks.entries) * blocks.block_length
        if flight is not None:
            used += sum(each.num_tokens for each in flight.pieces if each.sequence.state is State.RUNNING)
        return (blocks.num_blocks - blocks.num_free) * blocks.block_length, used

    @property
    def blocks(self) -> BlockManager:
        """Who owns which block."""
        return self._state.blocks

    def sequences(self) -> list[SequenceState]:
        """Those that wait or run, in the order of submission."""
        return [each for group in self._sequences.values() for each in group if each.state is not State.ENDED]

    @property
    def num_waiting(self) -> int:
        """Choices that wait."""
        return self._state.waiting.num_choices

    @property
    def num_running(self) -> int:
        """Sequences that run."""
        return len(self._state.running)

    @property
    def num_preemptions(self) -> int:
        """How many times a running sequence had to wait again, so far."""
        return self._state.preemptions

    @property
    def has_work(self) -> bool:
        """Whether a request has not ended."""
        return bool(self._sequences)

    def submit(self, request: Request) -> None:
        """Let the request wait for its turn.

        Raises InvalidRequestError; CapacityError if it can never run; QueueFullError if there is no place for now.
        """
        state = self._state
        try:
            if request.id in self._sequences:
                raise InvalidRequestError(
                    f"a request {request.id!r} has not ended yet; give this one another id.", "id"
                )
            check_request(request, self.limits, max(self._now, request.arrival))
            check_fits(request, state.blocks)
            check_queue(request, self.limits, state.waiting.load(bulk=request.bulk), self._estimate)
        except CutawayError as error:
            self.log.write(state.step, request.id, "refused", str(error))
            raise
        if not request.bulk and state.waiting.load(bulk=False).num_choices == 0:
            self._estimate.restart()
        self._serial += 1
        due = state.step + request.priority * self.limits.ageing
        # Of many that wait, as few bytes as can be; each has a list of its own when it is let in.
        ids = array("i", request.ids)
        together = self.limits.max_sequences if self.policy.shares_prompt else 1
        self._sequences[request.id] = [
            SequenceState(
                request,
                tuple(range(first, min(first + together, request.num_choices))),
                Rank(due, self._serial, first),
                ids,
                HashChain(request.salt, state.blocks.block_length),
            )
            for first in range(0, request.num_choices, together)
        ]
        for sequence in self._sequences[request.id]:
            state.waiting.push(sequence)
        if request.deadline is not None:
            self._deadlines.push((request.deadline, request.id), request)

    def abort(self, request_id: str, reason: str = "abort") -> bool:
        """End the request now, whatever its state; False if there is none of this id, or no more. reason: is logged."""
        group = self._sequences.get(request_id)
        if group is None:
            return False
        for sequence in group:
            if sequence.state is not State.ENDED:
                self._state.end(sequence, reason, settled=self._in_flight is None)
        self._forget(group[0].request)
        self.policy.drop_ended(self._state)
        return True

    def overdue(self, now: float) -> str | None:
        """The request whose deadline has passed first, to be aborted before the next step; None if there is none."""
        late = self._deadlines.first()
        return late.id if late is not None and late.deadline is not None and late.deadline <= now else None

    def schedule(self, now: float, refill: Callable[[], object] = no_refill, *, opens: bool = True) -> Step:
        """The next step at this reading of the clock. Without tokens, there is nothing to compute or to complete.

        refill: may submit requests, if there are places for them; it is called before the step is planned, and each
        time that somebody is let in. opens: open requests have their turn, where there are any; else they have it only
        if no others can go on. If it raises, no step is in flight, and all that run compute their tokens again.
        """
        if self._in_flight is not None:
            raise ValueError(f"step {self._in_flight.number} is neither completed nor cancelled")
        self._now = now
        state = self._state
        step = Step(state.step, opens=opens)
        try:
            state.refill = refill
            refill()
            self.policy.plan(state, step)
        except BaseException:  # blocks may have been taken that needed a copy, and the copies are lost
            self.forget_kv("the step failed while it was planned")
            raise
        finally:
            state.refill = no_refill  # another may know the engine, which knows this: a cycle, freed late
        self._estimate.observe(now, state.departures, state.waiting.load(bulk=False).num_choices)
        state.departures = 0
        if step.num_tokens:
            self._in_flight = step
        return step

    def complete(self, step: Step, sampled: Sequence[Sequence[Sampled]]) -> list[Ended]:
        """The step was computed. sampled: for each piece, a token for each of its choices.

        What was sampled for a request that was aborted meanwhile is ignored.
        """
        self._land(step)
        lengths = [len(tokens) for tokens in sampled]
        if lengths != [len(piece.choices) for piece in step.pieces]:
            raise ValueError(f"tokens for {lengths} choices are given; the pieces have {step.pieces}")
        ended: list[Ended] = []
        for piece, tokens in zip(step.pieces, sampled, strict=True):
            sequence = piece.sequence
            if sequence.state is State.RUNNING:
                sequence.num_computed += piece.num_tokens
                self._state.blocks.seal(sequence.blocks, sequence.ids, sequence.num_computed)
                ended += self._append(piece, tokens)
        self._state.step += 1
        self.policy.completed(self._state)
        return ended

    def cancel(self, step: Step) -> None:
        """The step failed, and nothing of it counts. What needed a copied block is computed again from the start."""
        self._land(step)
        targets = {copy.target for copy in step.copies}
        for piece in step.pieces:
            if piece.sequence.state is State.RUNNING and not targets.isdisjoint(piece.sequence.blocks.blocks):
                self._state.preempt(piece.sequence, "the step failed before its block was copied for certain")

    def reset_prefix_cache(self) -> None:
        """Forget the cached blocks that no sequence holds."""
        self._state.blocks.reset_prefix_cache()

    def forget_kv(self, reason: str) -> None:
        """No block's content can be relied upon: all that run compute their tokens again, and nothing is cached."""
        while self._state.running:
            self._state.preempt(self._state.running[-1], reason)
        self.policy.drop_ended(self._state)
        self.reset_prefix_cache()

    def check(self) -> None:
        """Raise RuntimeError if blocks or sequences are not where they belong. For tests and the idle engine."""
        self._state.blocks.check()
        sequences = [each for group in self._sequences.values() for each in group]
        running = [each for each in sequences if each.state is State.RUNNING]
        if sorted(map(id, running)) != sorted(map(id, self._state.running)):
            raise RuntimeError("the running sequences are not those that run")
        if any(
            one.rank >= other.rank for one, other in zip(self._state.running, self._state.running[1:], strict=False)
        ):
            raise RuntimeError("the running sequences are not in the order of rank")
        if any(each.table is not None or each.num_computed for each in sequences if each.state is State.WAITING):
            raise RuntimeError("a sequence that waits has blocks, or counts what was in them")
        self._state.waiting.check(each for each in sequences if each.state is State.WAITING)
        self._deadlines.check()
        requests = [group[0].request for group in self._sequences.values()]
        limited = [request for request in requests if request.deadline is not None]
        if sorted(map(id, limited)) != sorted(map(id, self._deadlines.items())):
            raise RuntimeError("the requests with a deadline are not those that are watched for it")
        if not self._sequences and self._state.blocks.num_free != self._state.blocks.num_blocks:
            raise RuntimeError("no request is left, and blocks are held")

    def has_place_for_bulk(self, num_choices: int, length: int) -> bool:
        """Whether a bulk request with so many choices of a prompt of ``length`` tokens would not be refused now."""
        return missing_places(self._state.waiting.load(bulk=True), self.limits, num_choices, length) == (0, 0)

    def _land(self, step: Step) -> None:
        """The step is no longer in flight."""
        if step is not self._in_flight:
            raise ValueError(f"step {step.number} is not the one in flight")
        self._in_flight = None

    def _append(self, piece: StepPiece, tokens: Sequence[Sampled]) -> list[Ended]:
        """Give each choice its token; from here on, choices that shared a prompt are sequences of their own."""
        parent = piece.sequence
        group = self._sequences[parent.request.id]
        branches = [parent] if len(tokens) <= 1 else [parent, *(self._fork(parent, each) for each in piece.choices[1:])]
        parent.choices = parent.choices[:1] if tokens else parent.choices
        group += branches[1:]
        ended = []
        for branch, sampled in zip(branches, tokens, strict=False):
            branch.ids.append(sampled.token)
            reason = "stop" if sampled.ends else "length"
            if sampled.ends or branch.num_new_tokens == branch.request.max_new_tokens:
                self._state.end(branch, reason, keep_blocks=not self.policy.frees_at_end)
                ended.append(Ended(branch.request.id, branch.choices[0], reason))
            elif branch is not parent and len(self._state.running) > self.limits.max_sequences:
                self._state.preempt(branch, "no row is free for this choice")
            elif not self.keeps_kv:
                self._state.forget(branch)
        if ended and all(each.state is State.ENDED for each in group):
            self._forget(parent.request)
        return ended

    def _fork(self, parent: SequenceState, choice: int) -> SequenceState:
        """A running sequence for one choice, with the parent's ids and blocks."""
        table = self._state.blocks.fork(parent.blocks)
        rank = parent.rank._replace(choice=choice)
        child = SequenceState(
            parent.request, (choice,), rank, list(parent.ids), table.chain, parent.num_computed, table=table
        )
        self._state.run(child)
        return child

    def _forget(self, request: Request) -> None:
        del self._sequences[request.id]
        if request.deadline is not None:
            self._deadlines.take((request.deadline, request.id))
