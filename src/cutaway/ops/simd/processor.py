"""Words that speak to the processor itself: atomics for the team, the cycle counter, the floating-point environment.

In and out: int64 values and addresses of int64 words. The floating-point environment is one register: MXCSR on x86,
FPCR on aarch64.
"""

from collections.abc import Sequence
from typing import Any, Final

from llvmlite import ir
from numba.core import cgutils, types

from cutaway.ops.simd.host import MACHINE
from cutaway.ops.simd.rows import I8, I32, I64, Address, call_llvm, intrinsic


def _word_at(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, I64.as_pointer())


@intrinsic
def atomic_add(typing_context: Any, address: Any, n: Any) -> Any:
    """Add n to the word; returns what it held before."""
    return types.int64(Address, types.int64), lambda context, b, signature, values: b.atomic_rmw(
        "add", _word_at(b, values[0]), values[1], "seq_cst"
    )


@intrinsic
def atomic_load(typing_context: Any, address: Any) -> Any:
    """The word, with acquire ordering: what its writer wrote before is visible after."""
    return types.int64(Address), lambda context, b, signature, values: b.load_atomic(
        _word_at(b, values[0]), "acquire", 8
    )


@intrinsic
def atomic_store(typing_context: Any, address: Any, n: Any) -> Any:
    """Write the word, with release ordering."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        builder.store_atomic(values[1], _word_at(builder, values[0]), "release", 8)
        return context.get_dummy_value()

    return types.none(Address, types.int64), codegen


@intrinsic
def pause(typing_context: Any) -> Any:
    """Tell the core that this thread spins.

    aarch64 has a hint for that, yield, which most cores pass over; its barrier for instructions takes a while, as pause
    does.
    """

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        if MACHINE == "aarch64":
            call_llvm(builder, "llvm.aarch64.isb", ir.VoidType(), ir.Constant(I32, 15))  # "sy": the only kind there is
        else:
            call_llvm(builder, "llvm.x86.sse2.pause", ir.VoidType())
        return context.get_dummy_value()

    return types.none(), codegen


@intrinsic
def yield_core(typing_context: Any) -> Any:
    """Offer the core to other threads (sched_yield, POSIX)."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        call_llvm(builder, "sched_yield", I32)
        return context.get_dummy_value()

    return types.none(), codegen


@intrinsic
def cycles(typing_context: Any) -> Any:
    """The time-stamp counter (x86) or the timer's count (aarch64): a constant rate on processors above the floor."""
    return types.int64(), lambda context, b, signature, values: call_llvm(b, "llvm.readcyclecounter", I64)


def _exchange_mxcsr(builder: ir.IRBuilder, state: ir.Value) -> ir.Value:
    slot = cgutils.alloca_once(builder, I32)
    pointer = builder.bitcast(slot, I8.as_pointer())
    call_llvm(builder, "llvm.x86.sse.stmxcsr", ir.VoidType(), pointer)
    old = builder.zext(builder.load(slot), I64)
    builder.store(builder.trunc(state, I32), slot)
    call_llvm(builder, "llvm.x86.sse.ldmxcsr", ir.VoidType(), pointer)
    return old


def _exchange_fpcr(builder: ir.IRBuilder, state: ir.Value) -> ir.Value:
    old = call_llvm(builder, "llvm.aarch64.get.fpcr", I64)
    call_llvm(builder, "llvm.aarch64.set.fpcr", ir.VoidType(), state)
    return old


_EXCHANGE: Final = {"x86_64": _exchange_mxcsr, "aarch64": _exchange_fpcr}[MACHINE]


@intrinsic
def set_float_environment(typing_context: Any, state: Any) -> Any:
    """Set this thread's MXCSR or FPCR; returns the old one. Rounding and flush-to-zero change bits, and callers may
    have set them.
    """
    return types.int64(types.int64), lambda context, b, signature, values: _EXCHANGE(b, values[0])


@intrinsic
def call_entry(typing_context: Any, address: Any, words: Any, results: Any) -> Any:
    """Call a compiled function by its entry, with the addresses of its arguments' words and of room for its results
    (``compiler.compile_entry``). Returns the entry's status, 0 if all is well.
    """

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        bytes_at = I8.as_pointer()
        function = ir.FunctionType(I32, [bytes_at, bytes_at]).as_pointer()
        places = [builder.inttoptr(value, bytes_at) for value in values[1:]]
        return builder.sext(builder.call(builder.inttoptr(values[0], function), places), I64)

    return types.int64(Address, Address, Address), codegen


@intrinsic
def call_kernel(typing_context: Any, address: Any, arguments: Any) -> Any:
    """Call a compiled kernel ``void f(int64, …)`` by its address with a tuple of int64 arguments."""
    count = len(arguments)

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        function = ir.FunctionType(ir.VoidType(), [I64] * count).as_pointer()
        builder.call(builder.inttoptr(values[0], function), cgutils.unpack_tuple(builder, values[1], count))
        return context.get_dummy_value()

    return types.none(types.int64, types.UniTuple(types.int64, count)), codegen
