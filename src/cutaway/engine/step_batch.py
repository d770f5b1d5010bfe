"""From a scheduled step to the batch that the forward reads.

In: the scheduler's pieces and pads. Out: a ``Batch``, its rows of logits in the order of the pieces.
"""

from typing import NamedTuple

from cutaway.model.batch import Piece, make_batch
from cutaway.ops.cpu.arrays import Batch
from cutaway.scheduler.step import Step

PAD_TOKEN = 0


class ScratchPage(NamedTuple):
    """The page into which pads are computed; no sequence has it."""

    page: int
    length: int  # positions that may be used


def batch_of(step: Step, scratch: ScratchPage | None = None) -> Batch:
    """The batch of a step. Block tables are made anew: between two steps blocks come, go, and are replaced.

    Pads are rows like any other, of sequences that lie in the scratch page one over the other. They all begin at
    position 0 with the same ids, so they write the same bits there; nobody else attends them.
    """
    pieces = [
        Piece(
            piece.start,
            piece.sequence.ids[piece.start : piece.start + piece.num_tokens],
            piece.sequence.blocks.blocks,
            piece.num_outputs,
        )
        for piece in step.pieces
    ]
    left = step.num_pads
    if left and scratch is None:
        raise ValueError(f"the step has {left} pads, and there is no scratch page")
    while left and scratch is not None:
        count = min(left, scratch.length)
        pieces.append(Piece(0, [PAD_TOKEN] * count, [scratch.page], 0))
        left -= count
    return make_batch(pieces)
