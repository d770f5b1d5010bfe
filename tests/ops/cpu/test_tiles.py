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
from support.weights import random_blocks, random_matrix, tile

FORMATS = sorted(TILE_FORMATS)
BLOCK_TYPE = {block_type.name: block_type for block_type in BLOCK_TYPES.values()}


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 16 * 3 + 7])
@pytest.mark.parametrize("name", FORMATS)
def test_every_row_decodes_to_the_files_values(name: str, rows: int) -> None:
    matrix = random_matrix(name, rows, 32 * 5, seed=rows)
    tokens = np.random.default_rng(0).permutation(rows).astype(np.int32)
    x = np.full((rows + 1, 32 * 5), -1.25, np.float32)
    run(embed, matrix.record, tokens, x[:rows], threads=2)
    assert differing(x[:rows], dequantize(BLOCK_TYPE[name], matrix.raw)[tokens]) == 0
    assert differing(x[:rows], matrix.values[tokens]) == 0
    assert (x[rows] == -1.25).all()


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_any_bytes_decode_to_the_files_values(name: str, data: st.DataObject) -> None:
    """Scales of any bits, NaN and infinities too."""
    size = BLOCK_TYPE[name].bytes_per_block
    raw = np.frombuffer(data.draw(st.binary(min_size=3 * size, max_size=3 * size)), np.uint8).reshape(1, -1)
    matrix = tile(name, raw, 96, np.zeros(1, np.float32))
    x = np.zeros((1, 96), np.float32)
    run(embed, matrix.record, np.zeros(1, np.int32), x)
    expected = dequantize(BLOCK_TYPE[name], raw)
    assert np.array_equal(x, expected, equal_nan=True)
    assert differing(np.where(np.isnan(x), 0, x), np.where(np.isnan(expected), 0, expected)) == 0


@pytest.mark.parametrize("name", FORMATS)
def test_the_padding_of_a_partial_tile_is_zero_but_for_the_flip(name: str) -> None:
    layout = TILE_FORMATS[name]
    matrix = random_matrix(name, 17, 32 * 2, seed=3)
    blocks = matrix.tiles[1].reshape(2, -1)
    groups = blocks[:, : 16 * layout.payload_bytes].reshape(2, -1, TILE_ROWS, 4)
    scales = blocks[:, 16 * layout.payload_bytes :].reshape(2, layout.scales, TILE_ROWS, 2)
    assert not groups[:, :, 1:].any()
    assert not scales[:, :, 1:].any()


@pytest.mark.parametrize("name", FORMATS)
def test_ranges_of_tiles_are_filled_apart(name: str) -> None:
    layout = TILE_FORMATS[name]
    raw = random_blocks(name, 16 * 4 + 2, 64, seed=4)
    whole = np.zeros((5, layout.tile_bytes(64)), np.uint8)
    parts = np.full_like(whole, 0xEE)
    repack(layout, raw, whole)
    repack(layout, raw, parts, 3, 5)
    assert (parts[:3] == 0xEE).all()
    repack(layout, raw, parts, 0, 3)
    assert differing(parts, whole) == 0


@pytest.mark.parametrize("name", FORMATS)
def test_tiles_are_no_larger_than_the_file(name: str) -> None:
    layout = TILE_FORMATS[name]
    assert layout.block_bytes == BLOCK_TYPE[name].bytes_per_block
    assert layout.size(32, 64) == 32 * 2 * BLOCK_TYPE[name].bytes_per_block
    assert layout.size(33, 64) == 48 * 2 * BLOCK_TYPE[name].bytes_per_block
