"""The embedding: token ids to rows of the vocabulary's matrix.

In: ids [T]. Out: x [T, D] float32, decoded from the matrix's own block format.
"""

from typing import Any

from cutaway.ops.cpu.arrays import Floats, Ints
from cutaway.ops.cpu.team import Team, barrier
from cutaway.ops.cpu.tiles.layout import TILE_ROWS
from cutaway.ops.kernel_cache import jit
from cutaway.ops.simd.processor import call_kernel


@jit
def embed(team: Team, weights: Any, tokens: Ints, x: Floats) -> None:
    """x[t] = row tokens[t] of weights[0]. weights: [1] record ``tiles.WEIGHT``, tokens: [T] int32, x: [T, D]."""
    matrix = weights[0]
    t = team.rank
    while t < tokens.shape[0]:
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
        t += team.size
    barrier(team)
