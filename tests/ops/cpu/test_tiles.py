"""Tiles hold exactly the file's values, and the embedding reads them back: bit by bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.formats.blocks import BLOCK_TYPES, dequantize
from cutaway.ops.cpu import embed
from cutaway.ops.cpu.tiles import TILE_FORMATS, repack
from cutaway.ops.cpu.tiles.layout import TILE_ROWS
from support.bits import differing
from support.teams import run
from support.weights import LAYOUTS, NUMBERS, random_blocks, random_matrix, tile

FORMATS = sorted(TILE_FORMATS)
BLOCK_TYPE = {block_type.name: block_type for block_type in BLOCK_TYPES.values()}


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 16 * 3 + 7])
@pytest.mark.parametrize("name", FORMATS)
def test_every_row_decodes_to_the_files_values(name: str, rows: int) -> None:
    columns = 5 * LAYOUTS[name].weights
    matrix = random_matrix(name, rows, columns, seed=rows)
    tokens = np.random.default_rng(0).permutation(rows).astype(np.int32)
    x = np.full((rows + 1, columns), -1.25, np.float32)
    run(embed, matrix.record, tokens, np.float32(1), x[:rows], threads=2)
    assert differing(x[:rows], dequantize(BLOCK_TYPE[name], matrix.raw)[tokens]) == 0
    assert differing(x[:rows], matrix.values[tokens]) == 0
    assert (x[rows] == -1.25).all()


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_any_bytes_decode_to_the_files_values(name: str, data: st.DataObject) -> None:
    """Scales of any bits, NaN and infinities too."""
    size = LAYOUTS[name].bytes
    raw = np.frombuffer(data.draw(st.binary(min_size=3 * size, max_size=3 * size)), np.uint8).reshape(1, -1)
    columns = 3 * LAYOUTS[name].weights
    matrix = tile(name, raw, columns, np.zeros(1, np.float32))
    x = np.zeros((1, columns), np.float32)
    run(embed, matrix.record, np.zeros(1, np.int32), np.float32(1), x)
    expected = dequantize(BLOCK_TYPE[name], raw)
    assert np.array_equal(x, expected, equal_nan=True)
    assert differing(np.where(np.isnan(x), 0, x), np.where(np.isnan(expected), 0, expected)) == 0


@pytest.mark.parametrize("name", FORMATS)
def test_the_padding_of_a_partial_tile_is_rows_of_zeros(name: str) -> None:
    columns = 2 * LAYOUTS[name].weights
    matrix = random_matrix(name, 17, columns, seed=3)
    x = np.full((TILE_ROWS, columns), -1.25, np.float32)
    run(embed, matrix.record, np.arange(16, 32, dtype=np.int32), np.float32(1), x)
    assert differing(x[:1], matrix.values[16:]) == 0
    assert (x[1:] == 0).all()


@pytest.mark.parametrize("name", FORMATS)
def test_ranges_of_tiles_are_filled_apart(name: str) -> None:
    layout = TILE_FORMATS[name]
    columns = 2 * LAYOUTS[name].weights
    raw = random_blocks(name, 16 * 4 + 2, columns, seed=4)
    whole = np.zeros((5, layout.tile_bytes(columns)), np.uint8)
    parts = np.full_like(whole, 0xEE)
    repack(layout, raw, whole)
    repack(layout, raw, parts, 3, 5)
    assert (parts[:3] == 0xEE).all()
    repack(layout, raw, parts, 0, 3)
    assert differing(parts, whole) == 0


@pytest.mark.parametrize("name", FORMATS)
def test_tiles_are_no_larger_than_the_file(name: str) -> None:
    """But for formats whose scales, packed in 6 bits, become bytes."""
    layout, columns = TILE_FORMATS[name], 2 * LAYOUTS[name].weights
    a_row = LAYOUTS[name].bytes + {"Q3_K": 4, "Q4_K": 4, "Q5_K": 4, "IQ4_XS": 2}.get(name, 0)
    assert layout.size(32, columns) == 32 * 2 * a_row
    assert layout.size(33, columns) == 48 * 2 * a_row


@pytest.mark.parametrize("name", FORMATS)
def test_the_tests_know_the_files_layout(name: str) -> None:
    block_type = BLOCK_TYPE[name]
    as_one = 32 if name in NUMBERS else 1
    assert LAYOUTS[name][:2] == (as_one * block_type.block_size, as_one * block_type.bytes_per_block)


def test_an_embedding_times_a_scale() -> None:
    """Gemma's: each number of the row times √D, rounded once."""
    matrix = random_matrix("Q8_0", 16, 64, seed=1)
    x = np.zeros((3, 64), np.float32)
    run(embed, matrix.record, np.array([0, 7, 15], np.int32), np.float32(25.298222), x)
    assert differing(x, matrix.values[[0, 7, 15]] * np.float32(25.298222)) == 0
