"""The scheduler's state: who waits, who runs, and the few ways from one to the other.

In: a policy's decisions. Out: the state changed, the decision written down. Every block is taken and given back here.
"""

from bisect import insort
from collections.abc import Callable

from cutaway.errors import counted
from cutaway.memory.block_manager import NOTHING_CACHED, BlockManager, CachedPrefix
from cutaway.scheduler.decisions import DecisionLog
from cutaway.scheduler.limits import SchedulerLimits
from cutaway.scheduler.sequence import SequenceState, State
from cutaway.scheduler.waiting_queue import WaitingQueue


def no_refill() -> None:
    """Nobody is held back."""


class SchedulerState:
    """Invariant: a sequence is in ``waiting`` if it is WAITING, in ``running`` if it is RUNNING; only the latter, and
    the rows of a static batch that have ended before it, have blocks.
    """

    def __init__(self, blocks: BlockManager, limits: SchedulerLimits, waiting: WaitingQueue, log: DecisionLog) -> None:
        self.blocks, self.limits, self.waiting, self.log = blocks, limits, waiting, log
        self.running: list[SequenceState] = []  # in the order of rank
        self.step = 0  # the number of the next step, or of the one that is being planned
        self.preemptions = 0  # so far
        self.departures = 0  # choices, but of bulk requests, that left the queue for the first time since the last step
        self.refill: Callable[[], object] = no_refill  # of the step that is being planned

    def cached_prefix(self, sequence: SequenceState) -> CachedPrefix:
        """The cached blocks with which a sequence that waits can begin."""
        if sequence.reads_cache:
            sequence.prefix = self.blocks.cached_prefix(sequence.chain, sequence.ids, sequence.prefix)
        return sequence.prefix

    def admit(self, sequence: SequenceState, prefix: CachedPrefix, reason: str) -> None:
        """From waiting to running, with the cached blocks that it begins with."""
        table = self.blocks.open(sequence.chain, prefix)  # first: if it fails, the sequence still waits
        self.waiting.take(sequence)
        if not sequence.was_preempted and not sequence.request.bulk:
            self.departures += len(sequence.choices)
        if not sequence.num_new_tokens:
            sequence.ids = list(sequence.request.ids)  # until now it shared them with the request's other sequences
        sequence.table = table
        sequence.num_computed = prefix.num_tokens
        sequence.prefix = NOTHING_CACHED
        self.run(sequence)
        self.log.write(self.step, sequence.name, "admitted", reason)
        self.refill()

    def run(self, sequence: SequenceState) -> None:
        """A sequence that has a block table is running."""
        sequence.state = State.RUNNING
        insort(self.running, sequence, key=lambda each: each.rank)

    def wait(self, sequence: SequenceState) -> None:
        """A sequence that has no block table waits."""
        sequence.state = State.WAITING
        self.waiting.push(sequence)

    def preempt(self, sequence: SequenceState, reason: str) -> None:
        """From running to waiting: its blocks are given back, and its tokens will be computed again."""
        self.preemptions += 1
        held = len(sequence.blocks.blocks)
        self.running.remove(sequence)
        self._close(sequence)
        sequence.was_preempted = True
        self.wait(sequence)
        self.log.write(self.step, sequence.name, "preempted", f"{reason}; gives back {counted(held, 'block')}")

    def end(self, sequence: SequenceState, reason: str, *, keep_blocks: bool = False, settled: bool = True) -> None:
        """The end, from any state. keep_blocks: until a static batch is over and calls ``give_back``. settled: no step
        is in flight, so what counts as computed is computed.
        """
        if sequence.state is State.WAITING:
            self.waiting.take(sequence)
        elif sequence.state is State.RUNNING:
            self.running.remove(sequence)
        sequence.state = State.ENDED
        if sequence.table is not None and settled and not keep_blocks:
            self.blocks.keep_tail(sequence.table, sequence.ids, sequence.num_computed)
        if not keep_blocks:
            self.give_back(sequence)
        self.log.write(self.step, sequence.name, "ended", reason)

    def forget(self, sequence: SequenceState) -> None:
        """Give the blocks of a running sequence back; it goes on to run, and computes all its tokens again."""
        self._close(sequence)
        sequence.table = self.blocks.open(sequence.chain)

    def give_back(self, sequence: SequenceState) -> None:
        """An ended sequence has no blocks from now on."""
        if sequence.table is not None:
            self._close(sequence)

    def _close(self, sequence: SequenceState) -> None:
        self.blocks.close(sequence.blocks)
        sequence.table = None
        sequence.num_computed = 0
