"""Words that cross lanes or fill them: constants, sums and maxima over the 16 lanes, masks by lane number.

In: scalars or one-vector ``Rows``. Out: ``Rows`` or scalars; a set of lanes is the low 16 bits of an int64. A sum over
lanes is always the same tree, 16 → 8 → 4 → 2 → 1, lane i with lane i + half: part of the numerical contract.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

from cutaway.ops.simd.registers import LANES
from cutaway.ops.simd.rows import (
    BYTES,
    FLOATS,
    I8,
    I16,
    I32,
    I64,
    INTS,
    VECTOR_I32,
    VECTOR_U8,
    Rows,
    broadcast,
    call_llvm,
    constant,
    intrinsic,
    pack,
    pick,
)


def _filled(name: str, element: str) -> Any:
    def word(typing_context: Any, m: Any) -> Any:
        if not isinstance(m, types.IntegerLiteral):
            return None
        rows = Rows(element, m.literal_value)

        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
            return pack(builder, rows, [constant(rows.vector, 0)] * rows.m)

        return rows(m), codegen

    word.__name__ = word.__qualname__ = name
    return intrinsic(prefer_literal=True)(word)


zeros = _filled("zeros", "f32")
zeros_int = _filled("zeros_int", "i32")


@intrinsic
def splat(typing_context: Any, x: Any) -> Any:
    """One float32 in all lanes."""
    return FLOATS(types.float32), lambda context, b, signature, values: pack(b, FLOATS, [broadcast(b, values[0])])


@intrinsic
def splat_int(typing_context: Any, x: Any) -> Any:
    """The low 32 bits of one integer in all lanes."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        return pack(builder, INTS, [broadcast(builder, builder.trunc(values[0], I32))])

    return INTS(types.int64), codegen


@intrinsic
def splat_uint8(typing_context: Any, x: Any) -> Any:
    """The low byte of one integer in all 64 bytes."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        return pack(builder, BYTES, [broadcast(builder, builder.trunc(values[0], I8), VECTOR_U8.count)])

    return BYTES(types.int64), codegen


@intrinsic
def lane_index(typing_context: Any) -> Any:
    """0, 1, … 15."""
    return INTS(), lambda context, b, signature, values: pack(b, INTS, [ir.Constant(VECTOR_I32, list(range(LANES)))])


def _tree(name: str, element: str, combine: Callable[..., ir.Value], result: types.Type) -> Any:
    def word(typing_context: Any, x: Any) -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
            vector = builder.extract_value(values[0], 0)
            for half in (8, 4, 2, 1):
                vector = combine(
                    builder,
                    pick(builder, vector, range(half)),
                    pick(builder, vector, range(half, 2 * half)),
                )
            return builder.extract_element(vector, ir.Constant(I32, 0))

        return result(Rows(element, 1)), codegen

    word.__name__ = word.__qualname__ = name
    return intrinsic(word)


lane_sum = _tree("lane_sum", "f32", lambda b, x, y: b.fadd(x, y), types.float32)
lane_max = _tree("lane_max", "f32", lambda b, x, y: b.select(b.fcmp_ordered(">", x, y), x, y), types.float32)
lane_max_int = _tree("lane_max_int", "i32", lambda b, x, y: b.select(b.icmp_signed(">", x, y), x, y), types.int32)
lane_sum_int = _tree("lane_sum_int", "i32", lambda b, x, y: b.add(x, y), types.int32)


@intrinsic
def keep_lanes(typing_context: Any, x: Any, first: Any, end: Any, other: Any) -> Any:
    """The lanes first … end - 1 of x; the others hold the float32 ``other``."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        vector, low, high, fill = values
        lane = ir.Constant(VECTOR_I32, list(range(LANES)))
        not_before = builder.icmp_signed(">=", lane, broadcast(builder, builder.trunc(low, I32)))
        not_behind = builder.icmp_signed("<", lane, broadcast(builder, builder.trunc(high, I32)))
        inside = builder.and_(not_before, not_behind)
        kept = builder.select(inside, builder.extract_value(vector, 0), broadcast(builder, fill))
        return pack(builder, FLOATS, [kept])

    return FLOATS(FLOATS, types.int64, types.int64, types.float32), codegen


@intrinsic
def lanes_at_most(typing_context: Any, x: Any, y: Any) -> Any:
    """The set of lanes where x ≤ y, for one vector of float32 (a NaN is in no set) or of signed int32."""
    if x != y or x not in (FLOATS, INTS):
        return None

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        left, right = (builder.extract_value(value, 0) for value in values)
        compare = builder.fcmp_ordered if x == FLOATS else builder.icmp_signed
        return builder.zext(builder.bitcast(compare("<=", left, right), I16), I64)

    return types.int64(x, y), codegen


@intrinsic
def first_lane(typing_context: Any, lanes: Any) -> Any:
    """The lowest lane of a set that is not empty."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        return call_llvm(builder, "llvm.cttz.i64", I64, values[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen


@intrinsic
def count_lanes(typing_context: Any, lanes: Any) -> Any:
    """How many lanes a set has."""
    return types.int64(types.int64), lambda context, b, signature, values: call_llvm(
        b, "llvm.ctpop.i64", I64, values[0]
    )
