"""The integer dot product, the word on which the engine's speed rests, in its lowerings.

In: accumulators (m rows of 16 int32), one vector of 64 unsigned bytes (16 lanes of 4), and for each row 4 signed bytes
in memory. Out: accumulator[r, lane] + Σ₄ unsigned[lane, i] · signed[r, i], exact in int32, hence the same on every
processor.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from cutaway.ops.simd.lowering import VECTORS
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
    join,
    load_at,
    pack,
    row_address,
    split,
    unpack,
)

_HALF_I8, _HALF_I16, _HALF_I32 = ir.VectorType(I8, 32), ir.VectorType(I16, 16), ir.VectorType(I32, 8)
_QUARTER_I8, _QUARTER_I32 = ir.VectorType(I8, 16), ir.VectorType(I32, 4)
_SDOT, _USDOT = "llvm.aarch64.neon.sdot.v4i32.v16i8", "llvm.aarch64.neon.usdot.v4i32.v16i8"


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
    for weights, total in zip(split(builder, unsigned, 2), split(builder, accumulator, 2), strict=True):
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
    return join(builder, halves)


def _dot_neon(builder: ir.IRBuilder, accumulator: ir.Value, unsigned: ir.Value, four: ir.Value, wide: bool) -> ir.Value:
    """sdot on four quarters: it multiplies signed bytes and adds four products to an int32, which wraps.

    Bytes up to 127 are the same signed. Others are taken as u - 128, which flips their top bit:
    Σ u · s = Σ (u - 128) · s - Σ (-128) · s, and the last sum is the same in all lanes.
    """
    signed = builder.bitcast(broadcast(builder, four, 4), _QUARTER_I8)
    weights, totals = split(builder, unsigned, 4), split(builder, accumulator, 4)
    if wide:
        sign = constant(_QUARTER_I8, 128)
        offset = call_llvm(builder, _SDOT, _QUARTER_I32, constant(_QUARTER_I32, 0), sign, signed)
        weights = [builder.xor(part, sign) for part in weights]
        totals = [builder.sub(total, offset) for total in totals]
    pairs = zip(totals, weights, strict=True)
    return join(builder, [call_llvm(builder, _SDOT, _QUARTER_I32, *pair, signed) for pair in pairs])


def _dot_neon_i8mm(
    builder: ir.IRBuilder, accumulator: ir.Value, unsigned: ir.Value, four: ir.Value, wide: bool
) -> ir.Value:
    """usdot on four quarters: unsigned times signed, as the word is defined."""
    signed = builder.bitcast(broadcast(builder, four, 4), _QUARTER_I8)
    pairs = zip(split(builder, accumulator, 4), split(builder, unsigned, 4), strict=True)
    return join(builder, [call_llvm(builder, _USDOT, _QUARTER_I32, *pair, signed) for pair in pairs])


_LOWERED = {"avx512": _dot_avx512, "avx2": _dot_avx2, "neon": _dot_neon, "neon_i8mm": _dot_neon_i8mm}[VECTORS]


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
