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

_FUTEX_NUMBER: Final = 98 if MACHINE == "aarch64" else 202  # Linux's numbers of the call
_FUTEX_WAIT, _FUTEX_WAKE, _FUTEX_PRIVATE = 0, 1, 128
_EVERYBODY: Final = 2**31 - 1


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


def _futex(b: ir.IRBuilder, address: ir.Value, operation: int, value: ir.Value) -> ir.Value:
    """futex(2) on the low half of a word; both processors are little-endian, so that it lies at the word's address.

    The C library has no function of this name, so it goes through ``syscall``.
    """
    arguments = [
        ir.Constant(I64, _FUTEX_NUMBER),
        address,
        ir.Constant(I64, operation | _FUTEX_PRIVATE),
        value,
        ir.Constant(I64, 0),  # no time-out
    ]
    name, kind = "syscall", ir.FunctionType(I64, [I64], var_arg=True)
    function = b.module.globals.get(name) or ir.Function(b.module, kind, name)
    return b.call(function, arguments)


@intrinsic
def sleep_while(typing_context: Any, address: Any, n: Any) -> Any:
    """Sleep if the word's low half is n's, until ``wake`` at this address, or for no reason (futex(2), FUTEX_WAIT)."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        low = builder.zext(builder.trunc(values[1], I32), I64)
        _futex(builder, values[0], _FUTEX_WAIT, low)
        return context.get_dummy_value()

    return types.none(Address, types.int64), codegen


@intrinsic
def wake(typing_context: Any, address: Any) -> Any:
    """Wake all threads that sleep at this address (futex(2), FUTEX_WAKE)."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        _futex(builder, values[0], _FUTEX_WAKE, ir.Constant(I64, _EVERYBODY))
        return context.get_dummy_value()

    return types.none(Address), codegen


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
