"""What a computed step was, for whoever watches the engine: whose tokens, where, how long, and who had which block.

In: a step that is complete, and the scheduler. Out: a ``SeenStep`` of plain numbers. An engine that nobody watches
makes none.
"""

from typing import NamedTuple, Protocol, runtime_checkable

from cutaway.engine.steps import Steps
from cutaway.ops.cpu.arrays import Batch, Floats
from cutaway.ops.cpu.clock import Clocks
from cutaway.scheduler.scheduler import Scheduler
from cutaway.scheduler.step import Step


class SeenPiece(NamedTuple):
    """One sequence's part of a step."""

    request_id: str
    choices: tuple[int, ...]  # of the request, that this sequence is
    start: int  # position of the first token
    num_tokens: int
    num_outputs: int  # rows of logits
    sampled: int  # tokens that were chosen
    blocks: int  # that the sequence holds


class SeenStep(NamedTuple):
    """One step of the engine, as it was when it was done."""

    number: int
    started: float  # on the engine's clock
    seconds: float  # with the sampler's time
    pieces: tuple[SeenPiece, ...]
    pads: int
    is_open: bool  # run operation by operation, for taps
    waiting: int  # choices
    blocks_held: int
    blocks_cached: int  # that nobody holds, and that are still good for others
    blocks_total: int
    clocks: "Clocks | None"  # of the members, where the step ran timed


class StepWatcher(Protocol):
    """Hears of each step, on the engine's thread. What it raises is told as a warning, and it hears no more."""

    def wants_clocks(self, step: Step) -> bool:
        """Whether this step shall run timed: the same bits, with a time stamp after each operation."""

    def saw(self, seen: SeenStep) -> None:
        """The step is done, and its tokens are not yet with those who asked."""


@runtime_checkable
class TimedSteps(Steps, Protocol):
    """A runner that can run a step timed."""

    def step_timed(self, batch: Batch) -> "Clocks":
        """As ``step``; the members' clocks."""

    def logits_of(self, batch: Batch) -> Floats:
        """The logits of the batch that was computed last."""


def see_step(step: Step, scheduler: Scheduler, started: float, now: float, clocks: "Clocks | None") -> SeenStep:
    """The step before it is completed: blocks are those that it was computed with."""
    pool = scheduler.blocks.pool
    return SeenStep(
        number=step.number,
        started=started,
        seconds=now - started,
        pieces=tuple(
            SeenPiece(
                piece.sequence.request.id,
                tuple(piece.sequence.choices),
                piece.start,
                piece.num_tokens,
                piece.num_outputs,
                len(piece.choices),
                0 if piece.sequence.table is None else len(piece.sequence.table.blocks),
            )
            for piece in step.pieces
        ),
        pads=step.num_pads,
        is_open=step.is_open,
        waiting=scheduler.num_waiting,
        blocks_held=pool.num_blocks - pool.num_free,
        blocks_cached=pool.num_kept,
        blocks_total=pool.num_blocks,
        clocks=clocks,
    )
