"""The embedding: token ids to rows of the vocabulary's matrix, and the positions' rows added to them.

In: ids [T], positions [T]. Out: x [T, D] float32, decoded from the matrix's own block format.
"""

from typing import Any

import numpy as np

from cutaway.ops.cpu.arrays import Floats, Ints
from cutaway.ops.cpu.team import Team, barrier, share
from cutaway.ops.cpu.tiles.layout import TILE_ROWS
from cutaway.ops.kernel_cache import jit
from cutaway.ops.simd import call_kernel


@jit
def embed(team: Team, weights: Any, tokens: Ints, scale: np.float32, x: Floats) -> None:
    """x[t] = scale · row tokens[t] of weights[0], [1] record ``tiles.WEIGHT``. tokens: [T] int32, x: [T, D]."""
    matrix = weights[0]
    for t in share(team, tokens.shape[0]):
        tile, lane = tokens[t] // TILE_ROWS, tokens[t] % TILE_ROWS
        call_kernel(
            matrix.decode_row,
            (
                matrix.tiles + tile * matrix.tile_bytes,
                lane,
                matrix.columns // 32,
                x.ctypes.data + t * x.strides[0],
            ),
        )
        if scale != 1:
            for i in range(x.shape[1]):
                x[t, i] *= scale
    barrier(team)


@jit
def add_positions(team: Team, rows: Floats, positions: Ints, x: Floats) -> None:
    """x[t] += rows[positions[t]]; nothing where rows [P, D] has no row. positions: [T] int32, x: [T, D]."""
    if rows.shape[0] == 0:
        return
    for t in share(team, x.shape[0]):
        for i in range(x.shape[1]):
            x[t, i] += rows[positions[t], i]
    barrier(team)
