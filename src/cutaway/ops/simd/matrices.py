"""Words for the matrix registers of AMX: eight registers of 16 rows of 64 bytes, and products of whole registers.

In: addresses and strides in bytes; registers by number, which must be a literal. Out: registers changed, or memory
written. Only the lowering "amx" has these words. The registers are a thread's own; a thread that uses them before
``open_matrices``, or behind ``close_matrices``, is killed (SIGILL), so a kernel opens and closes them itself. Which
operand of a product C += A · B, of bytes to int32, a register can be is fixed:

    registers 0 … 3, C:  16 rows of 16 int32
    registers 4 and 5, A:  16 rows of ``depth`` signed bytes
    registers 6 and 7, B:  depth / 4 rows of 16 times 4 signed bytes: lane n has bytes 4i … 4i + 3 of column n in row i

(Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter "Programming with Intel AMX".)
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from cutaway.ops.simd.registers import MATRIX_ROWS, ROW_BYTES
from cutaway.ops.simd.rows import I8, Address, call_llvm, intrinsic

_PALETTE = 1  # the only one there is
_DEPTHS = (16, 32, 64)  # a block's halves, a block of 32, all that a register holds


def _shapes(depth: int) -> bytes:
    """The 64 bytes of a configuration: palette, then bytes a row (16 bits each) and rows (8 bits each)."""
    row_bytes = [ROW_BYTES] * 4 + [depth] * 2 + [ROW_BYTES] * 2
    rows = [MATRIX_ROWS] * 6 + [depth // 4] * 2
    words = b"".join(each.to_bytes(2, "little") for each in row_bytes)
    return (bytes([_PALETTE]).ljust(16, b"\0") + words).ljust(48, b"\0") + bytes(rows).ljust(16, b"\0")


def _number(literal: Any) -> ir.Value:
    return ir.Constant(I8, literal.literal_value)


def _are_literals(*operands: Any) -> bool:
    return all(isinstance(operand, types.IntegerLiteral) for operand in operands)


def _pointer(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, I8.as_pointer())


@intrinsic(prefer_literal=True)
def open_matrices(typing_context: Any, depth: Any) -> Any:
    """Shape this thread's registers for products over ``depth`` bytes, a literal 16, 32 or 64, and clear them."""
    if not _are_literals(depth) or depth.literal_value not in _DEPTHS:
        return None

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        shapes = bytearray(_shapes(depth.literal_value))
        constant = ir.Constant(ir.ArrayType(I8, len(shapes)), shapes)
        table = cgutils.global_constant(builder, f"matrix_shapes_{depth.literal_value}", constant)
        call_llvm(builder, "llvm.x86.ldtilecfg", ir.VoidType(), builder.bitcast(table, I8.as_pointer()))
        return context.get_dummy_value()

    return types.none(depth), codegen


@intrinsic
def close_matrices(typing_context: Any) -> Any:
    """Give this thread's registers up: what isn't in use needn't be saved when threads change."""

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        call_llvm(builder, "llvm.x86.tilerelease", ir.VoidType())
        return context.get_dummy_value()

    return types.none(), codegen


@intrinsic(prefer_literal=True)
def clear_matrix(typing_context: Any, register: Any) -> Any:
    """Zeros into a register."""
    if not _are_literals(register):
        return None

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        call_llvm(builder, "llvm.x86.tilezero", ir.VoidType(), _number(register))
        return context.get_dummy_value()

    return types.none(register), codegen


def _mover(name: str, instruction: str) -> Any:
    def word(typing_context: Any, register: Any, address: Any, stride: Any) -> Any:
        if not _are_literals(register):
            return None

        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
            arguments = _number(register), _pointer(builder, values[1]), values[2]
            call_llvm(builder, instruction, ir.VoidType(), *arguments)
            return context.get_dummy_value()

        return types.none(register, Address, Address), codegen

    word.__name__ = word.__qualname__ = name
    return intrinsic(prefer_literal=True)(word)


load_matrix = _mover("load_matrix", "llvm.x86.tileloadd64")
"""Row r of a register from address + r · stride."""
store_matrix = _mover("store_matrix", "llvm.x86.tilestored64")
"""Row r of a register to address + r · stride."""


@intrinsic(prefer_literal=True)
def multiply_matrices(typing_context: Any, c: Any, a: Any, b: Any) -> Any:
    """C += A · B: c[m, n] + Σ_k a[m, k] · b[k, n], exact in int32."""
    if not _are_literals(c, a, b):
        return None

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
        numbers = [_number(register) for register in (c, a, b)]
        call_llvm(builder, "llvm.x86.tdpbssd", ir.VoidType(), *numbers)
        return context.get_dummy_value()

    return types.none(c, a, b), codegen
