"""Words that move vectors between registers and memory. Addresses and strides are integers, in bytes.

In: addresses. Out: ``Rows``, or memory written. Nothing is checked here: the kernels' callers own the bounds.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

from cutaway.ops.simd.registers import LANES
from cutaway.ops.simd.rows import (
    BYTES,
    F16,
    F32,
    FLOATS,
    I8,
    I16,
    I32,
    I64,
    INTS,
    VECTOR_F32,
    VECTOR_I32,
    VECTOR_U8,
    Address,
    Rows,
    broadcast,
    call_llvm,
    constant,
    intrinsic,
    load_at,
    pack,
    row_address,
    store_at,
    unpack,
)

_VECTOR_F16, _VECTOR_I16, _VECTOR_I8 = (ir.VectorType(each, LANES) for each in (F16, I16, I8))


def _loader(name: str, rows: Rows, stored: ir.Type, convert: Callable[..., ir.Value] = lambda b, x: x) -> Any:
    def word(typing_context: Any, address: Any) -> Any:
        return rows(Address), lambda context, b, signature, values: pack(
            b, rows, [convert(b, load_at(b, values[0], stored))]
        )

    word.__name__ = word.__qualname__ = name
    return intrinsic(word)


load = _loader("load", FLOATS, VECTOR_F32)
load_int = _loader("load_int", INTS, VECTOR_I32)
load_half = _loader("load_half", FLOATS, _VECTOR_F16, lambda b, x: b.fpext(x, VECTOR_F32))
load_bfloat = _loader(
    "load_bfloat",
    FLOATS,
    _VECTOR_I16,
    lambda b, x: b.bitcast(b.shl(b.zext(x, VECTOR_I32), constant(VECTOR_I32, 16)), VECTOR_F32),
)
"""16 bfloat16, which are the upper halves of float32."""
load_uint8 = _loader("load_uint8", BYTES, VECTOR_U8)
load_int8 = _loader("load_int8", INTS, _VECTOR_I8, lambda b, x: b.sext(x, VECTOR_I32))
"""16 signed bytes as int32."""


@intrinsic
def prefetch(typing_context: Any, address: Any) -> Any:
    """Ask for the cache line at the address, which need not be readable, into the second level."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        pointer = builder.inttoptr(values[0], I8.as_pointer())
        call_llvm(builder, "llvm.prefetch.p0", ir.VoidType(), pointer, I32(0), I32(2), I32(1))
        return context.get_dummy_value()

    return types.none(Address), codegen


@intrinsic
def load_uint8_scalar(typing_context: Any, address: Any) -> Any:
    """One byte as int64."""
    return types.int64(Address), lambda context, b, signature, values: b.zext(load_at(b, values[0], I8), I64)


@intrinsic
def load_uint32_scalar(typing_context: Any, address: Any) -> Any:
    """Four bytes, little-endian, as int64."""
    return types.int64(Address), lambda context, b, signature, values: b.zext(load_at(b, values[0], I32), I64)


def _low_bits_storer(name: str, stored: ir.Type) -> Any:
    def word(typing_context: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
            store_at(builder, builder.trunc(values[1], stored), values[0])
            return context.get_dummy_value()

        return types.none(Address, types.int64), codegen

    word.__name__ = word.__qualname__ = name
    return intrinsic(word)


store_uint8_scalar = _low_bits_storer("store_uint8_scalar", I8)
"""The low byte of an int64."""
store_uint32_scalar = _low_bits_storer("store_uint32_scalar", I32)
"""The low four bytes of an int64, little-endian."""


@intrinsic
def load_half_scalar(typing_context: Any, address: Any) -> Any:
    """One float16 as float32."""
    return types.float32(Address), lambda context, b, signature, values: b.fpext(load_at(b, values[0], F16), F32)


def _splat_rows(
    name: str, element: str, stored: ir.Type, align: int = 4, convert: Callable[..., ir.Value] = lambda b, x: x
) -> Any:
    def word(typing_context: Any, address: Any, stride: Any, m: Any) -> Any:
        if not isinstance(m, types.IntegerLiteral):
            return None
        rows = Rows(element, m.literal_value)

        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
            scalars = [
                load_at(builder, row_address(builder, values[0], values[1], row), stored, align)
                for row in range(rows.m)
            ]
            return pack(builder, rows, [broadcast(builder, convert(builder, scalar)) for scalar in scalars])

        return rows(Address, Address, m), codegen

    word.__name__ = word.__qualname__ = name
    return intrinsic(prefer_literal=True)(word)


splat_rows = _splat_rows("splat_rows", "f32", F32)
"""Row r holds the float32 at address + r · stride in all lanes."""
splat_rows_int = _splat_rows("splat_rows_int", "i32", I32)
"""Row r holds the int32 at address + r · stride in all lanes."""
splat_rows_int8 = _splat_rows("splat_rows_int8", "i32", I8, 1, lambda b, x: b.sext(x, I32))
"""Row r holds the signed byte at address + r · stride, as int32, in all lanes."""


def _rows_loader(name: str, element: str, vector: ir.VectorType) -> Any:
    def word(typing_context: Any, address: Any, stride: Any, m: Any) -> Any:
        if not isinstance(m, types.IntegerLiteral):
            return None
        rows = Rows(element, m.literal_value)

        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
            addresses = [row_address(builder, values[0], values[1], row) for row in range(rows.m)]
            return pack(builder, rows, [load_at(builder, each, vector, 4) for each in addresses])

        return rows(Address, Address, m), codegen

    word.__name__ = word.__qualname__ = name
    return intrinsic(prefer_literal=True)(word)


load_rows = _rows_loader("load_rows", "f32", VECTOR_F32)
"""m vectors of float32; row r from address + r · stride."""
load_rows_int = _rows_loader("load_rows_int", "i32", VECTOR_I32)
"""m vectors of int32; row r from address + r · stride."""


@intrinsic
def store_rows(typing_context: Any, address: Any, stride: Any, rows: Any) -> Any:
    """Write m vectors; row r to address + r · stride."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        for row, vector in enumerate(unpack(builder, values[2], rows.m)):
            store_at(builder, vector, row_address(builder, values[0], values[1], row), 4)
        return context.get_dummy_value()

    return types.none(Address, Address, rows), codegen


def _storer(name: str, rows: Rows, convert: Callable[..., ir.Value] = lambda b, x: x) -> Any:
    def word(typing_context: Any, address: Any, x: Any) -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
            store_at(builder, convert(builder, builder.extract_value(values[1], 0)), values[0])
            return context.get_dummy_value()

        return types.none(Address, rows), codegen

    word.__name__ = word.__qualname__ = name
    return intrinsic(word)


store = _storer("store", FLOATS)
store_int = _storer("store_int", INTS)
store_uint8 = _storer("store_uint8", BYTES)
store_int8 = _storer("store_int8", INTS, lambda b, x: b.trunc(x, _VECTOR_I8))
"""The low bytes of 16 int32."""


@intrinsic
def load_scalar(typing_context: Any, address: Any) -> Any:
    """One float32."""
    return types.float32(Address), lambda context, b, signature, values: load_at(b, values[0], F32)


@intrinsic
def store_scalar(typing_context: Any, address: Any, x: Any) -> Any:
    """One float32."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        store_at(builder, values[1], values[0])
        return context.get_dummy_value()

    return types.none(Address, types.float32), codegen


def _stored_type(size: Any) -> tuple[ir.Type, ir.Type] | None:
    """(scalar, vector) of a literal size in bytes: 1 is int8, 2 is float16, 4 is float32."""
    if not isinstance(size, types.IntegerLiteral):
        return None
    return {1: (I8, _VECTOR_I8), 2: (F16, _VECTOR_F16), 4: (F32, VECTOR_F32)}[size.literal_value]


def _narrow(builder: ir.IRBuilder, x: ir.Value, stored: ir.Type) -> ir.Value:
    """float32, one or 16, as a number of the stored type, rounded to nearest even."""
    if stored == x.type:
        return x
    if stored in (F16, _VECTOR_F16):
        return builder.fptrunc(x, stored)
    suffix, integers = ("f32", I32) if x.type == F32 else ("v16f32", VECTOR_I32)
    return builder.trunc(builder.fptosi(call_llvm(builder, f"llvm.rint.{suffix}", x.type, x), integers), stored)


@intrinsic(prefer_literal=True)
def load_sized(typing_context: Any, address: Any, size: Any) -> Any:
    """16 numbers of ``size`` bytes (a literal: 1 int8, 2 float16, 4 float32) as float32."""
    stored = _stored_type(size)
    if stored is None:
        return None

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        vector = load_at(builder, values[0], stored[1])
        if stored[0] is I8:
            vector = builder.sitofp(builder.sext(vector, VECTOR_I32), VECTOR_F32)
        elif stored[0] is F16:
            vector = builder.fpext(vector, VECTOR_F32)
        return pack(builder, FLOATS, [vector])

    return FLOATS(Address, size), codegen


@intrinsic(prefer_literal=True)
def store_sized(typing_context: Any, address: Any, x: Any, size: Any) -> Any:
    """16 float32 as numbers of ``size`` bytes (as ``load_sized``), rounded to nearest even. A magnitude that int8
    doesn't hold must not come; NaN becomes any number.
    """
    stored = _stored_type(size)
    if stored is None:
        return None

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        store_at(builder, _narrow(builder, builder.extract_value(values[1], 0), stored[1]), values[0])
        return context.get_dummy_value()

    return types.none(Address, FLOATS, size), codegen


@intrinsic(prefer_literal=True)
def store_scalar_sized(typing_context: Any, address: Any, x: Any, size: Any) -> Any:
    """One float32 as a number of ``size`` bytes, as ``store_sized`` does it."""
    stored = _stored_type(size)
    if stored is None:
        return None

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        store_at(builder, _narrow(builder, values[1], stored[0]), values[0])
        return context.get_dummy_value()

    return types.none(Address, types.float32, size), codegen
