"""Looking up bytes in a table of 16, in its lowerings: weights of 4 bits whose values are not evenly spaced.

In: the table, as two integers of 8 bytes; 64 indices from 0 to 15. Out: 64 bytes.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

from cutaway.ops.simd.lowering import VECTORS
from cutaway.ops.simd.rows import BYTES, I64, VECTOR_I32, VECTOR_U8, call_llvm, intrinsic, join, pack, split

_VECTOR_I64 = ir.VectorType(I64, 8)


@intrinsic
def splat_16_bytes(typing_context: Any, low: Any, high: Any) -> Any:
    """The bytes of two int64, the lowest first, four times."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        vector = ir.Constant(_VECTOR_I64, ir.Undefined)
        for place in range(8):
            vector = builder.insert_element(vector, values[place % 2], ir.Constant(VECTOR_I32.element, place))
        return pack(builder, BYTES, [builder.bitcast(vector, VECTOR_U8)])

    return BYTES(types.int64, types.int64), codegen


def _look_up_avx512(builder: ir.IRBuilder, table: ir.Value, index: ir.Value) -> ir.Value:
    """vpshufb: each 16 bytes are looked up in the 16 bytes of the table at their place, all of which are the same."""
    return call_llvm(builder, "llvm.x86.avx512.pshuf.b.512", VECTOR_U8, table, index)


def _look_up_avx2(builder: ir.IRBuilder, table: ir.Value, index: ir.Value) -> ir.Value:
    """The same on two halves."""
    halves = zip(split(builder, table, 2), split(builder, index, 2), strict=True)
    return join(builder, [call_llvm(builder, "llvm.x86.avx2.pshuf.b", half[0].type, *half) for half in halves])


def _look_up_neon(builder: ir.IRBuilder, table: ir.Value, index: ir.Value) -> ir.Value:
    """tbl on four quarters."""
    quarters = zip(split(builder, table, 4), split(builder, index, 4), strict=True)
    name = "llvm.aarch64.neon.tbl1.v16i8"
    return join(builder, [call_llvm(builder, name, quarter[0].type, *quarter) for quarter in quarters])


_LOWERED = {"avx512": _look_up_avx512, "avx2": _look_up_avx2, "neon": _look_up_neon, "neon_i8mm": _look_up_neon}[
    VECTORS
]


@intrinsic
def look_up_bytes(typing_context: Any, table: Any, index: Any) -> Any:
    """table[index] for each byte; the table is of ``splat_16_bytes``, every index below 16."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        found = _LOWERED(builder, *(builder.extract_value(value, 0) for value in values))
        return pack(builder, BYTES, [found])

    return BYTES(BYTES, BYTES), codegen
