"""Batches: how pieces are laid out flat, and that nothing gets to the forward that would leave its arrays."""

import numpy as np
import pytest

from cutaway.model.batch import NO_PAGE, Piece, check_batch, make_batch
from cutaway.model.shapes import Limits
from cutaway.ops.cpu.arrays import Batch

LIMITS = Limits(max_tokens=40, max_outputs=5, threads=2, context=128, subtiles=8)
V, PAGES, PAGE = 211, 8, 16


def check(batch: Batch) -> None:
    check_batch(batch, LIMITS, V, PAGES, PAGE)


def good() -> Batch:
    return make_batch([Piece(5, [1, 2, 3, 210], [3]), Piece(16, [7] * 20, [0, 7, 2], outputs=2), Piece(0, [9], [4])])


def test_a_batch_is_flat_and_cut_into_runs() -> None:
    batch = good()
    check(batch)
    assert batch.positions.tolist() == [5, 6, 7, 8, *range(16, 36), 0]
    assert batch.sequences.tolist() == [0] * 4 + [1] * 20 + [2]
    # Runs end at multiples of 8 positions: 5-7, 8, 16-23, 24-31, 32-35, 0.
    assert batch.runs.tolist() == [[0, 3], [3, 1], [4, 8], [12, 8], [20, 4], [24, 1]]
    assert batch.output_rows.tolist() == [3, 22, 23, 24]
    assert batch.block_tables.tolist() == [[3, NO_PAGE, NO_PAGE], [0, 7, 2], [4, NO_PAGE, NO_PAGE]]


@pytest.mark.parametrize(
    "piece",
    [Piece(0, [], [0]), Piece(-1, [1], [0]), Piece(0, [1], [0], outputs=2), Piece(0, [1], [0], outputs=-1)],
)
def test_a_piece_that_makes_no_sense_is_refused(piece: Piece) -> None:
    with pytest.raises(ValueError, match="piece 1 has"):
        make_batch([Piece(0, [1], [0]), piece])


@pytest.mark.parametrize(
    ("batch", "rule"),
    [
        (make_batch([Piece(0, [1] * 41, [0, 1, 2])]), "1 to 40 tokens"),
        (make_batch([Piece(0, [1] * 6, [0], outputs=6)]), "at most 5 rows"),
        (make_batch([Piece(0, [211], [0])]), "ids below 211"),
        (make_batch([Piece(0, [-1], [0])]), "ids below 211"),
        (make_batch([Piece(128, [1], list(range(8)))]), "positions below 128"),
        (make_batch([Piece(16, [1], [0])]), "pages below 8"),
        (make_batch([Piece(0, [1], [8])]), "pages below 8"),
        (make_batch([Piece(0, [1], [-1])]), "pages below 8"),
        (make_batch([Piece(0, [1] * 17, [0]), Piece(0, [1], [1, 2])]), "pages below 8"),
        (good()._replace(sequences=np.full(25, 3, np.int32)), "sequences among"),
        (good()._replace(output_rows=np.array([25], np.int32)), "rows of logits among"),
        (good()._replace(output_rows=np.array([-1], np.int32)), "rows of logits among"),
        (good()._replace(positions=good().positions[[0, 2, 1, *range(3, 25)]]), "consecutive positions"),
        (good()._replace(positions=good().positions[:-1]), "a position and a sequence"),
        (good()._replace(runs=np.array([[0, 25]], np.int32)), "runs of 1 to 8"),
        (good()._replace(runs=good().runs[:-1]), "cover the tokens"),
        (good()._replace(runs=good().runs[::-1].copy()), "cover the tokens"),
        (good()._replace(runs=np.array([[0, 4], *good().runs[2:].tolist()], np.int32)), "consecutive positions"),
    ],
)
def test_what_would_leave_the_arrays_is_refused(batch: Batch, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        check(batch)
