"""From a scheduled step to the batch that the forward reads.

In: the scheduler's pieces and pads. Out: a ``Batch``, its rows of logits in the order of the pieces. Where a step
has the sequences of the step before, each with one token, the arrays are that one's, changed where that differs.
"""

from typing import Final, NamedTuple

from cutaway.model.batch import NO_PAGE, Piece, make_batch
from cutaway.ops.cpu.arrays import Batch
from cutaway.scheduler.sequence import SequenceState
from cutaway.scheduler.step import Step

PAD_TOKEN: Final = 0
SPARE_PAGES: Final = 8  # columns of a block table for what its sequences will take soon


class ScratchPage(NamedTuple):
    """The page into which pads are computed; no sequence has it."""

    page: int
    length: int  # positions that may be used


class StepBatches:
    """Makes the batch of one step after the other. Each is good until the next is made."""

    def __init__(self, scratch: ScratchPage | None = None) -> None:
        """scratch: for the pads of static batches."""
        self._scratch = scratch
        self._batch: Batch | None = None  # the last one, if each of its sequences had one token
        self._sequences: list[SequenceState] = []  # its rows
        self._blocks: list[list[int]] = []  # what its block tables have of each

    def batch_of(self, step: Step) -> Batch:
        """The batch of a step.

        Pads are rows like any other, of sequences that lie in the scratch page one over the other. They all begin at
        position 0 with the same ids, so they write the same bits there; nobody else attends them.
        """
        sequences = [piece.sequence for piece in step.pieces]
        decodes = step.num_pads == 0 and all(piece.num_tokens == 1 and piece.choices for piece in step.pieces)
        if decodes and sequences == self._sequences and self._batch is not None and self._update_tables(self._batch):
            self._batch.tokens[:] = [piece.sequence.ids[piece.start] for piece in step.pieces]
            self._batch.positions[:] = [piece.start for piece in step.pieces]
            return self._batch
        batch = make_batch(self._pieces(step), SPARE_PAGES)
        self._batch, self._sequences = (batch, sequences) if decodes else (None, [])
        self._blocks = [list(sequence.blocks.blocks) for sequence in self._sequences]
        return batch

    def forget(self) -> None:
        """Nothing is left to do: hold no sequence."""
        self._batch, self._sequences, self._blocks = None, [], []

    def _update_tables(self, batch: Batch) -> bool:
        """Write the block tables that have changed: between two steps blocks come and are replaced. False if a table
        has no column for one.
        """
        for row, sequence in enumerate(self._sequences):
            blocks = sequence.blocks.blocks
            if blocks != self._blocks[row]:
                if len(blocks) > batch.block_tables.shape[1]:
                    return False
                batch.block_tables[row, : len(blocks)] = blocks
                batch.block_tables[row, len(blocks) :] = NO_PAGE
                self._blocks[row] = list(blocks)
        return True

    def _pieces(self, step: Step) -> list[Piece]:
        """The step's pieces, then its pads."""
        pieces = [
            Piece(
                piece.start,
                piece.sequence.ids[piece.start : piece.start + piece.num_tokens],
                piece.sequence.blocks.blocks,
                piece.num_outputs,
            )
            for piece in step.pieces
        ]
        left, scratch = step.num_pads, self._scratch
        if left and scratch is None:
            raise ValueError(f"the step has {left} pads, and there is no scratch page")
        while left and scratch is not None:
            count = min(left, scratch.length)
            pieces.append(Piece(0, [PAD_TOKEN] * count, [scratch.page], 0))
            left -= count
        return pieces
