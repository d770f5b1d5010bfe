"""A step that counts, as observers are told of it: in plain numbers, and by what each of its pieces has brought.

In: what the core knows of the step. Out: a ``StepOutcome``. Nothing is made for it before it is asked for.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from cutaway.engine.results import PieceResult, Taken
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
    """One step of the engine in plain numbers, as it was when it was computed."""

    number: int
    started: float  # on the engine's clock
    seconds: float  # with the sampler's time
    pieces: tuple[SeenPiece, ...]
    pads: int
    is_open: bool  # somebody looked into it: for a request's taps, or for an observer
    waiting: int  # choices
    blocks_held: int
    blocks_cached: int  # that nobody holds, and that are still good for others
    blocks_total: int
    clocks: "Clocks | None"  # of the members, where the step ran timed


class Computed(NamedTuple):
    """A step's computation."""

    batch: Batch
    results: list[PieceResult]
    is_open: bool
    clocks: "Clocks | None"


class StepOutcome:
    """To be asked while it is told: the step is not complete yet, and blocks are those that it was computed with.

    ``computed.results`` has what the step found for each piece, ``taken`` what its request took of it. A request that
    an error ended may have samples without a delta: they don't count. All are the core's own: to be read.
    """

    def __init__(
        self,
        step: Step,
        computed: Computed,
        taken: Sequence[Taken],
        times: tuple[float, float],
        runner: Steps,
        scheduler: Scheduler,
    ) -> None:
        """taken: by each piece. times: when it was started, on the engine's clock, and the seconds that it took."""
        self.step, self.computed, self.taken = step, computed, taken
        self._times = times
        self._runner, self._scheduler = runner, scheduler

    @cached_property
    def seen(self) -> SeenStep:
        """The step in numbers, which may be kept."""
        step, scheduler, pool = self.step, self._scheduler, self._scheduler.blocks.pool
        started, seconds = self._times
        return SeenStep(
            number=step.number,
            started=started,
            seconds=seconds,
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
            is_open=self.computed.is_open,
            waiting=scheduler.num_waiting,
            blocks_held=pool.num_blocks - pool.num_free,
            blocks_cached=pool.num_kept,
            blocks_total=pool.num_blocks,
            clocks=self.computed.clocks,
        )

    @property
    def residuals(self) -> Floats:
        """The last residual rows [O, D] of the step's output rows: ``num_outputs`` of each piece, in their order. From
        the last of them its tokens were sampled. The next step overwrites them.
        """
        return self._runner.residuals(self.computed.batch)
