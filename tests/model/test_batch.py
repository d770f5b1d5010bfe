"""Ragged batches: the flat arrays are exactly the pieces, and runs never cross a border of attention's grid."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cutaway.model.batch import Piece, make_batch, runs_of
from cutaway.ops.cpu.attention import RUN_LENGTH, TILE


@given(st.integers(0, 50), st.integers(0, 5000), st.integers(1, 400))
def test_runs_cover_every_token_once_within_the_grid(first: int, start: int, count: int) -> None:
    runs = runs_of(first, start, count)
    rows = [row for begin, length in runs for row in range(begin, begin + length)]
    assert rows == list(range(first, first + count))
    for begin, length in runs:
        positions = range(start + begin - first, start + begin - first + length)
        assert 1 <= length <= RUN_LENGTH
        assert len({position // RUN_LENGTH for position in positions}) == 1
        assert len({position // TILE for position in positions}) == 1
    assert len(runs) == len({(start + i) // RUN_LENGTH for i in range(count)}), "more runs than need be"


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=9))
def test_the_arrays_are_the_pieces(sizes: list[tuple[int, int, int]]) -> None:
    rng = np.random.default_rng(0)
    pieces = [
        Piece(start, rng.integers(0, 999, n).tolist(), rng.integers(0, 99, i + 1).tolist(), min(n, outputs))
        for i, (start, n, outputs) in enumerate(sizes)
    ]
    batch = make_batch(pieces)
    assert all(field.dtype == np.int32 for field in batch)
    row, outputs = 0, []
    for number, piece in enumerate(pieces):
        for offset, token in enumerate(piece.tokens):
            assert (batch.tokens[row], batch.positions[row]) == (token, piece.start + offset)
            assert batch.sequences[row] == number
            if offset >= len(piece.tokens) - piece.outputs:
                outputs.append(row)
            row += 1
        assert batch.block_tables[number, : len(piece.pages)].tolist() == list(piece.pages)
    assert row == len(batch.tokens)
    assert batch.output_rows.tolist() == outputs
