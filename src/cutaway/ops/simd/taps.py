"""The words behind the taps of the forward and of the sampler: nothing, a time stamp, or a call of Python.

In: what a tap is shown. Out: nothing. They are words, since a compiled function would be compiled anew for each kind of
array that it is shown.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

from cutaway.ops.simd.rows import I64, call_llvm, intrinsic, load_at, store_at


@intrinsic
def no_tap(typing_context: Any, team: Any, name: Any, layer: Any, array: Any) -> Any:
    """The closed forward's tap: nothing."""
    return types.none(team, name, layer, array), lambda context, builder, signature, values: context.get_dummy_value()


@intrinsic
def no_row_tap(typing_context: Any, name: Any, values: Any) -> Any:
    """The closed sampler's tap: nothing."""
    return types.none(name, values), lambda context, builder, signature, arguments: context.get_dummy_value()


@intrinsic
def clock_tap(typing_context: Any, team: Any, name: Any, layer: Any, array: Any) -> Any:
    """The timed run's tap: append the time-stamp counter to this member's notes, int64 words: how many, then the
    stamps.
    """

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        notes = builder.extract_value(values[0], team.fields.index("notes"))
        count = builder.add(load_at(builder, notes, I64, 8), ir.Constant(I64, 1))
        stamp = call_llvm(builder, "llvm.readcyclecounter", I64)
        store_at(builder, stamp, builder.add(notes, builder.mul(count, ir.Constant(I64, 8))), 8)
        store_at(builder, count, notes, 8)
        return context.get_dummy_value()

    return types.none(team, name, layer, array), codegen


@intrinsic
def call_back(typing_context: Any, address: Any, number: Any) -> Any:
    """Call the C function ``void f(int64)`` at an address. It may take the GIL: nobody here holds it."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        function = builder.inttoptr(values[0], ir.FunctionType(ir.VoidType(), [I64]).as_pointer())
        builder.call(function, [values[1]])
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), codegen
