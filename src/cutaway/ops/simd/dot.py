"""The integer dot product, the word on which the engine's speed rests, in its two lowerings.

In: accumulators (m rows of 16 int32), one vector of 64 unsigned bytes (16 lanes of 4), and for each row 4 signed bytes
in memory. Out: accumulator[r, lane] + Σ₄ unsigned[lane, i] · signed[r, i], exact in int32, hence the same on every
processor.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from cutaway.ops.simd.lowering import LOWERING
from cutaway.ops.simd.rows import (
    BYTES,
    I8,
    I16,
    I32,
    VECTOR_I32,
    Address,
    Rows,
    broadcast,
    call_llvm,
    constant,
    intrinsic,
    load_at,
    pack,
    pick,
    row_address,
    unpack,
)

_HALF_I8, _HALF_I16, _HALF_I32 = ir.VectorType(I8, 32), ir.VectorType(I16, 16), ir.VectorType(I32, 8)


def _dot_avx512(
    builder: ir.IRBuilder, accumulator: ir.Value, unsigned: ir.Value, four: ir.Value, wide: bool
) -> ir.Value:
    """One VNNI instruction: vpdpbusd."""
    signed = broadcast(builder, four)
    weights = builder.bitcast(unsigned, VECTOR_I32)
    return call_llvm(builder, "llvm.x86.avx512.vpdpbusd.512", VECTOR_I32, accumulator, weights, signed)


def _dot_avx2(builder: ir.IRBuilder, accumulator: ir.Value, unsigned: ir.Value, four: ir.Value, wide: bool) -> ir.Value:
    """pmaddubsw and pmaddwd on two halves.

    pmaddubsw adds two products in saturating int16: exact for unsigned bytes up to 127 (2 · 127 · 128 < 2¹⁵), so bytes
    that may be larger are split into their top bit and the rest, whose products are summed apart.
    """
    signed = builder.bitcast(broadcast(builder, four, 8), _HALF_I8)
    ones = constant(_HALF_I16, 1)
    halves = []
    for half in (0, 1):
        weights = pick(builder, unsigned, range(32 * half, 32 * half + 32))
        total = pick(builder, accumulator, range(8 * half, 8 * half + 8))
        parts = [weights]
        if wide:
            parts = [
                builder.and_(weights, constant(_HALF_I8, 127)),
                builder.and_(weights, constant(_HALF_I8, 128)),
            ]
        for part in parts:
            pairs = call_llvm(builder, "llvm.x86.avx2.pmadd.ub.sw", _HALF_I16, part, signed)
            total = builder.add(total, call_llvm(builder, "llvm.x86.avx2.pmadd.wd", _HALF_I32, pairs, ones))
        halves.append(total)
    return builder.shuffle_vector(halves[0], halves[1], ir.Constant(VECTOR_I32, list(range(16))))


_LOWERED = {"avx512": _dot_avx512, "avx2": _dot_avx2}[LOWERING]


def _dot(name: str, wide: bool) -> Any:
    def word(typing_context: Any, accumulator: Any, unsigned: Any, address: Any, stride: Any) -> Any:
        if not (isinstance(accumulator, Rows) and accumulator.element == "i32"):
            return None

        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
            weights = builder.extract_value(values[1], 0)
            sums = []
            for row, total in enumerate(unpack(builder, values[0], accumulator.m)):
                four = load_at(builder, row_address(builder, values[2], values[3], row), I32, 4)
                sums.append(_LOWERED(builder, total, weights, four, wide))
            return pack(builder, accumulator, sums)

        return accumulator(accumulator, BYTES, Address, Address), codegen

    word.__name__ = word.__qualname__ = name
    return intrinsic(word)


dot_u7 = _dot("dot_u7", wide=False)
"""For unsigned bytes of at most 127 (4- to 7-bit weights)."""
dot_u8 = _dot("dot_u8", wide=True)
"""For all unsigned bytes."""
