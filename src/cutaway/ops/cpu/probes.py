"""Probes of the machine: streaming reads, integer dot products, float32 multiply-adds, AMX, as fast as they go.

In: a team's member, and how much to do. Out: in ``elapsed[0]``, the cycles from the barrier before the work to the one
behind it. What a member computed goes to its row of ``sink``: the compiler would leave out work without a result.
"""

from typing import Any, Final, TypeAlias

import numpy as np

from cutaway.ops.cpu.arrays import Ints
from cutaway.ops.cpu.team import Team, barrier
from cutaway.ops.kernel_cache import jit
from cutaway.ops.simd import (
    add_int,
    atomic_load,
    close_matrices,
    cycles,
    dot_u7,
    fma,
    load_int,
    load_matrix,
    load_uint8,
    multiply_matrices,
    open_matrices,
    splat,
    store_int,
    store_matrix,
    store_rows,
    zeros,
    zeros_int,
)
from cutaway.ops.simd.lowering import VECTORS
from cutaway.ops.simd.registers import REGISTER_BYTES, ROW_BYTES

Words: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

DOT_ROWS: Final = {"avx512": 12, "avx2": 2, "neon": 5, "neon_i8mm": 5}[VECTORS]
FMA_ROWS: Final = {"avx512": 12, "avx2": 5, "neon": 6, "neon_i8mm": 6}[VECTORS]
"""Independent accumulators: enough to hide the latency, few enough to stay in registers."""

STREAM_STEP: Final = 256  # bytes that an iteration reads
DOT_LINES: Final = 16  # vectors of 64 weights that the dot products run over: they stay in L1
PRODUCTS: Final = 64  # int8 products of one dot product of vectors
SUMS: Final = 4  # matrix registers of sums: all that there are, and enough to hide the latency
MATRIX_PRODUCTS: Final = 16 * 16 * 64  # int8 products of one product of registers


@jit
def stream_read(team: Team, address: int, size: int, sink: Ints, elapsed: Words) -> None:
    """Read ``size`` bytes from ``address``, each member a contiguous share; the sums of 16 lanes of int32 go to sink.

    size: a multiple of the members times STREAM_STEP. sink: [n, 16 or more] int32.
    """
    share = size // team.size
    source = address + team.rank * share
    a, b, c, d = zeros_int(1), zeros_int(1), zeros_int(1), zeros_int(1)
    barrier(team)
    begin = cycles()
    for offset in range(source, source + share, STREAM_STEP):
        a = add_int(a, load_int(offset))
        b = add_int(b, load_int(offset + 64))
        c = add_int(c, load_int(offset + 128))
        d = add_int(d, load_int(offset + 192))
    store_int(sink.ctypes.data + team.rank * sink.strides[0], add_int(add_int(a, b), add_int(c, d)))
    barrier(team)
    if team.rank == 0:
        elapsed[0] = cycles() - begin


@jit
def dot_products(team: Team, weights: int, activations: int, passes: int, sink: Ints, elapsed: Words) -> None:
    """passes · DOT_LINES · DOT_ROWS dot products of 64 int8 pairs by each member, summed in DOT_ROWS vectors.

    weights: address of DOT_LINES · 64 unsigned bytes up to 127; activations: address of DOT_ROWS · 4 signed bytes. The
    activations stay in registers. The weights come from L1, one load for DOT_ROWS products: were they constant, the
    compiler would take AVX2's multiplications out of the loop.
    """
    total = zeros_int(DOT_ROWS)
    barrier(team)
    begin = cycles()
    for _ in range(passes):
        atomic_load(elapsed.ctypes.data)  # to the compiler, all memory may have changed: no pass equals the last
        for line in range(DOT_LINES):
            total = dot_u7(total, load_uint8(weights + 64 * line), activations, 4)
    store_rows(sink.ctypes.data + team.rank * sink.strides[0], 64, total)
    barrier(team)
    if team.rank == 0:
        elapsed[0] = cycles() - begin


@jit
def multiply_adds(team: Team, passes: int, x: np.float32, sink: Ints, elapsed: Words) -> None:
    """passes · FMA_ROWS vectors of 16 float32 fma by each member, in registers: sink, as float32, holds passes · x²."""
    total = zeros(FMA_ROWS)
    factor = splat(x)
    barrier(team)
    begin = cycles()
    for _ in range(passes):
        total = fma(factor, factor, total)
    store_rows(sink.ctypes.data + team.rank * sink.strides[0], 64, total)
    barrier(team)
    if team.rank == 0:
        elapsed[0] = cycles() - begin


@jit
def matrix_products(team: Team, matrices: int, passes: int, sink: Ints, elapsed: Words) -> None:
    """passes · SUMS products of whole matrix registers by each member; their sums go to sink, REGISTER_BYTES each.

    matrices: address of four registers' bytes, [2, 16, 64] of A and [2, 16, 64] of B; they stay in their registers.
    Sum i + 2j is of A i and B j. Only where the lowering is "amx".
    """
    out = sink.ctypes.data + team.rank * sink.strides[0]
    open_matrices(64)
    load_matrix(4, matrices, ROW_BYTES)
    load_matrix(5, matrices + REGISTER_BYTES, ROW_BYTES)
    load_matrix(6, matrices + 2 * REGISTER_BYTES, ROW_BYTES)
    load_matrix(7, matrices + 3 * REGISTER_BYTES, ROW_BYTES)
    barrier(team)
    begin = cycles()
    for _ in range(passes):
        multiply_matrices(0, 4, 6)
        multiply_matrices(1, 5, 6)
        multiply_matrices(2, 4, 7)
        multiply_matrices(3, 5, 7)
    store_matrix(0, out, ROW_BYTES)
    store_matrix(1, out + REGISTER_BYTES, ROW_BYTES)
    store_matrix(2, out + 2 * REGISTER_BYTES, ROW_BYTES)
    store_matrix(3, out + 3 * REGISTER_BYTES, ROW_BYTES)
    barrier(team)
    if team.rank == 0:
        elapsed[0] = cycles() - begin
    close_matrices()
