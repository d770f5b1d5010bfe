"""The matrix product: rows of int8 activations times weight matrices in tiles.

In: one or several weight records whose outputs stand side by side (Q, K and V; gate and up), quantised rows. Out:
float32 rows. Few rows are multiplied with a tile of weights as it is; many, on a processor with matrix registers, with
pairs of tiles that are first expanded into panels (``tiles.panel``). The bits are the same.
"""

from typing import Any, Final

from cutaway.ops.cpu.arrays import ROW_GROUP, SCALE_STRIDE, Activation, Bytes, Floats
from cutaway.ops.cpu.team import Team, barrier, take
from cutaway.ops.cpu.tiles.layout import ROW_BLOCK, TILE_ROWS
from cutaway.ops.cpu.tiles.panel import PANEL_BLOCK, PANEL_ROWS, PANELS
from cutaway.ops.kernel_cache import inner_jit, jit
from cutaway.ops.simd import call_kernel

ROWS_IN_CACHE: Final = 64
"""Rows of activations that are multiplied with a group of tiles before the next ones: 64 rows of 1,536 bytes stay in
L2.
"""
LEAST_ROWS: Final = 24  # of activations for which it pays to expand weights into panels
ITEMS_PER_MEMBER: Final = 8  # enough that a slow member can leave work to others
MOST_TILES: Final = 8  # tiles of a work item


@inner_jit
def _multiply_tile(
    weight: Any, tile: int, activation: Activation, first: int, end: int, out: Floats, column: int
) -> None:
    """Rows first … end - 1 of out[:, column + 16 · tile …] = x @ w.T + bias for one tile."""
    num_blocks = weight.columns // 32
    q_stride, group_bytes, out_stride = activation.q.strides[0], activation.scale.strides[0], out.strides[0]
    address, bias = weight.tiles + tile * weight.tile_bytes, weight.bias + 4 * TILE_ROWS * tile
    target = out.ctypes.data + 4 * (column + TILE_ROWS * tile)
    row = first
    while row < end:
        many = row + ROW_BLOCK <= end
        scales = row // ROW_GROUP * group_bytes + row % ROW_GROUP * SCALE_STRIDE
        call_kernel(
            weight.multiply_many if many else weight.multiply_one,
            (
                address,
                num_blocks,
                bias,
                activation.q.ctypes.data + row * q_stride,
                q_stride,
                activation.scale.ctypes.data + scales,
                activation.block_sum.ctypes.data + scales,
                activation.scaled_sum.ctypes.data + scales,
                target + row * out_stride,
                out_stride,
            ),
        )
        row += ROW_BLOCK if many else 1


@inner_jit
def _multiply_pair(weight: Any, tile: int, activation: Activation, out: Floats, column: int, room: int) -> None:
    """All rows of out[:, column + 16 · tile …] = x @ w.T + bias for two tiles, by way of panels."""
    num_blocks = weight.columns // 32
    for half in range(2):
        panel = room + PANELS + half * num_blocks * PANEL_BLOCK
        call_kernel(weight.expand, (weight.tiles + (tile + half) * weight.tile_bytes, num_blocks, panel))
    call_kernel(
        weight.multiply_panel,
        (
            room,
            num_blocks,
            weight.bias + 4 * TILE_ROWS * tile,
            activation.q.ctypes.data,
            activation.q.strides[0],
            activation.scale.ctypes.data,
            activation.scaled_sum.ctypes.data,
            activation.scale.strides[0],
            out.shape[0],
            out.ctypes.data + 4 * (column + TILE_ROWS * tile),
            out.strides[0],
        ),
    )


@jit
def matmul(team: Team, weights: Any, activation: Activation, room: Bytes, out: Floats) -> None:
    """out[:, segment k] = x @ weights[k].T + bias for each segment k.

    weights: [S] records ``tiles.WEIGHT`` of K columns; activation: T quantised rows of at least K; room: [n, W] bytes,
    a row for each member, where it expands panels; out: [T, Σ rows] float32. All segments but the last have a multiple
    of 16 rows; a last partial tile writes up to a multiple of 16 columns, which out's row stride must leave room for.
    """
    T = out.shape[0]
    num_tiles = 0
    for segment in range(weights.shape[0]):
        num_tiles += (weights[segment].rows + TILE_ROWS - 1) // TILE_ROWS
    # Panels read whole blocks of rows, which must be there.
    padded = (T + PANEL_ROWS - 1) // PANEL_ROWS * PANEL_ROWS
    panels = weights[0].multiply_panel != 0 and T >= LEAST_ROWS and padded <= activation.q.shape[0]
    rows = T if panels else ROWS_IN_CACHE
    group = min(MOST_TILES, max(1, num_tiles // (team.size * ITEMS_PER_MEMBER)))
    if panels:
        group += group % 2
    num_items = (num_tiles + group - 1) // group
    own_room = room.ctypes.data + team.rank * room.strides[0]
    item = take(team, num_items)
    while item >= 0:
        for first in range(0, T, rows):
            end = min(T, first + rows)
            number, behind = item * group, min(num_tiles, item * group + group)
            while number < behind:
                segment, column, tile = 0, 0, number
                while tile >= (weights[segment].rows + TILE_ROWS - 1) // TILE_ROWS:
                    tile -= (weights[segment].rows + TILE_ROWS - 1) // TILE_ROWS
                    column += weights[segment].rows
                    segment += 1
                weight = weights[segment]
                two = number + 1 < behind and TILE_ROWS * (tile + 1) < weight.rows
                if panels and two and weight.multiply_panel != 0:
                    _multiply_pair(weight, tile, activation, out, column, own_room)
                    number += 2
                else:
                    _multiply_tile(weight, tile, activation, first, end, out, column)
                    number += 1
        item = take(team, num_items)
    barrier(team)
