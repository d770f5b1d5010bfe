"""A step that counts, as observers are told of it: in plain numbers, and by what each of its pieces has brought.

In: what the core knows of the step. Out: a ``StepOutcome``. Nothing of it is made before it is asked for, and then
once, however many observers ask.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, cast

from cutaway.engine.generation import Generation
from cutaway.engine.outputs import Delta
from cutaway.engine.results import PieceResult, Taken
from cutaway.engine.steps import Steps
from cutaway.ops.cpu.arrays import Batch, Floats
from cutaway.ops.cpu.clock import Clocks
from cutaway.sampling.sampler import SampleResult
from cutaway.scheduler.scheduler import Scheduler
from cutaway.scheduler.step import Step, StepPiece


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


class PieceOutcome(NamedTuple):
    """What a step has brought to one piece's request. ``piece.sequence`` is as it was before the step."""

    piece: StepPiece
    generation: Generation
    scores: dict[int, SampleResult]  # of the prompt's tokens, by position
    samples: list[SampleResult]  # one for each token that was taken, in the order of ``piece.choices``
    deltas: list[Delta]  # and what each is to whoever asked
    residual: Floats | None  # [D], of the row whose logits the tokens were sampled from; the next step overwrites it


class Computed(NamedTuple):
    """A step's computation."""

    batch: Batch
    results: list[PieceResult]
    is_open: bool
    clocks: "Clocks | None"


class StepOutcome:
    """To be asked while it is told: the step is not complete yet, and blocks are those that it was computed with."""

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
        self.step, self.computed = step, computed
        self._taken, self._times = taken, times
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

    @cached_property
    def pieces(self) -> list[PieceOutcome]:
        """What it has brought, piece by piece."""
        residuals = self._runner.residuals(self.computed.batch)
        found, end = [], 0
        for (piece, generation, asking, samples), (_, own) in zip(self.computed.results, self._taken, strict=True):
            outputs = piece.num_outputs
            end += outputs
            residual = residuals[end - 1] if outputs and piece.choices else None
            # An error brings no delta, nor does what comes behind it.
            sampled = cast("list[SampleResult]", samples[: len(own)])
            found.append(PieceOutcome(piece, generation, asking.scores, sampled, own, residual))
        return found
