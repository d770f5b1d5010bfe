"""The matrix product: rows of int8 activations times weight matrices in tiles.

In: one or several weight records whose outputs stand side by side (Q, K and V; gate and up), quantised rows. Out:
float32 rows.
"""

from typing import Any, Final

from cutaway.ops.cpu.arrays import Activation, Floats
from cutaway.ops.cpu.team import Team, barrier, take
from cutaway.ops.cpu.tiles.layout import ROW_BLOCK, TILE_ROWS
from cutaway.ops.kernel_cache import jit
from cutaway.ops.simd.processor import call_kernel

ROWS_IN_CACHE: Final = 64
"""Rows of activations that are multiplied with a group of tiles before the next ones: 64 rows of 1,536 bytes stay in
L2.
"""
ITEMS_PER_MEMBER: Final = 8  # enough that a slow member can leave work to others
MOST_TILES: Final = 8  # tiles of a work item


@jit
def _multiply_tile(
    weight: Any, tile: int, activation: Activation, first: int, end: int, out: Floats, column: int
) -> None:
    """Rows first … end - 1 of out[:, column + 16 · tile …] = x @ tile.T + bias."""
    num_blocks = weight.columns // 32
    q_stride, block_stride, out_stride = activation.q.strides[0], activation.scale.strides[0], out.strides[0]
    address, bias = weight.tiles + tile * weight.tile_bytes, weight.bias + 4 * TILE_ROWS * tile
    target = out.ctypes.data + 4 * (column + TILE_ROWS * tile)
    row = first
    while row < end:
        many = row + ROW_BLOCK <= end
        call_kernel(
            weight.multiply_many if many else weight.multiply_one,
            (
                address,
                num_blocks,
                bias,
                activation.q.ctypes.data + row * q_stride,
                q_stride,
                activation.scale.ctypes.data + row * block_stride,
                activation.block_sum.ctypes.data + row * block_stride,
                activation.scaled_sum.ctypes.data + row * block_stride,
                block_stride,
                target + row * out_stride,
                out_stride,
            ),
        )
        row += ROW_BLOCK if many else 1


@jit
def matmul(team: Team, weights: Any, activation: Activation, out: Floats) -> None:
    """out[:, segment k] = x @ weights[k].T + bias for each segment k.

    weights: [S] records ``tiles.WEIGHT`` of K columns; activation: T quantised rows of at least K; out: [T, Σ rows]
    float32. All segments but the last have a multiple of 16 rows; a last partial tile writes up to a multiple of 16
    columns, which out's row stride must leave room for.
    """
    T = out.shape[0]
    num_tiles = 0
    for segment in range(weights.shape[0]):
        num_tiles += (weights[segment].rows + TILE_ROWS - 1) // TILE_ROWS
    group = min(MOST_TILES, max(1, num_tiles // (team.size * ITEMS_PER_MEMBER)))
    num_items = (num_tiles + group - 1) // group
    item = take(team, num_items)
    while item >= 0:
        for first in range(0, T, ROWS_IN_CACHE):
            for number in range(item * group, min(num_tiles, item * group + group)):
                segment, column, tile = 0, 0, number
                while tile >= (weights[segment].rows + TILE_ROWS - 1) // TILE_ROWS:
                    tile -= (weights[segment].rows + TILE_ROWS - 1) // TILE_ROWS
                    column += weights[segment].rows
                    segment += 1
                _multiply_tile(weights[segment], tile, activation, first, min(T, first + ROWS_IN_CACHE), out, column)
        item = take(team, num_items)
    barrier(team)
