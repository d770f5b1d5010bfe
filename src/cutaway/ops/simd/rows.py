"""The type ``Rows(element, m)`` and the few LLVM helpers from which the words of the vocabulary are built.

In: LLVM values of one vector each. Out: an LLVM array of m vectors, which LLVM keeps in registers.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import cgutils, types
from numba.extending import models, register_model

from cutaway.ops.simd.registers import LANES

intrinsic: Any = extending.intrinsic
"""Numba's decorator without its types: a word is called with the operands alone, not with the typing context."""

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()
VECTOR_F32, VECTOR_I32, VECTOR_U8 = (
    ir.VectorType(F32, LANES),
    ir.VectorType(I32, LANES),
    ir.VectorType(I8, 64),
)
VECTOR_OF = {"f32": VECTOR_F32, "i32": VECTOR_I32, "u8": VECTOR_U8}

Address = types.int64


class Rows(types.Type):
    """m vectors of one element type ("f32", "i32": 16 lanes; "u8": 64 lanes), held in registers."""

    def __init__(self, element: str, m: int) -> None:
        self.element, self.m = element, m
        super().__init__(name=f"Rows({element}, {m})")

    @property
    def vector(self) -> ir.VectorType:
        """The LLVM type of one of the vectors."""
        return VECTOR_OF[self.element]

    @property
    def array(self) -> ir.ArrayType:
        """The LLVM type of all m of them."""
        return ir.ArrayType(self.vector, self.m)


@register_model(Rows)
class _RowsModel(models.PrimitiveModel):
    def __init__(self, manager: Any, rows: Rows) -> None:
        super().__init__(manager, rows, rows.array)


FLOATS, INTS, BYTES = Rows("f32", 1), Rows("i32", 1), Rows("u8", 1)


def constant(vector: ir.VectorType, value: float) -> ir.Constant:
    """The vector with ``value`` in all lanes."""
    return ir.Constant(vector, [value] * vector.count)


def unpack(builder: ir.IRBuilder, value: ir.Value, m: int) -> list[ir.Value]:
    """The m vectors of a Rows value."""
    return [builder.extract_value(value, row) for row in range(m)]


def pack(builder: ir.IRBuilder, rows: Rows, vectors: Sequence[ir.Value]) -> ir.Value:
    """A Rows value of the given vectors."""
    value = ir.Constant(rows.array, ir.Undefined)
    for row, vector in enumerate(vectors):
        value = builder.insert_value(value, vector, row)
    return value


def broadcast(builder: ir.IRBuilder, scalar: ir.Value, lanes: int = LANES) -> ir.Value:
    """A vector with one scalar in all lanes."""
    undefined = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, undefined, constant(ir.VectorType(I32, lanes), 0))


def pick(builder: ir.IRBuilder, vector: ir.Value, lanes: Sequence[int]) -> ir.Value:
    """A vector of the named lanes of another."""
    return builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes)))


def split(builder: ir.IRBuilder, vector: ir.Value, parts: int) -> list[ir.Value]:
    """The vector's parts of equal length, the lowest lanes first."""
    lanes = vector.type.count // parts
    return [pick(builder, vector, range(lanes * part, lanes * (part + 1))) for part in range(parts)]


def join(builder: ir.IRBuilder, parts: Sequence[ir.Value]) -> ir.Value:
    """What ``split`` took apart; the number of parts is a power of two."""
    while len(parts) > 1:
        lanes = list(range(2 * parts[0].type.count))
        both = ir.Constant(ir.VectorType(I32, len(lanes)), lanes)
        parts = [builder.shuffle_vector(*pair, both) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def call_llvm(builder: ir.IRBuilder, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
    """Call an LLVM intrinsic by its name."""
    function_type = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), arguments)


def load_at(builder: ir.IRBuilder, address: ir.Value, loaded: ir.Type, align: int = 1) -> ir.Value:
    """Load a value of type ``loaded`` from an integer address.

    A trap: a ``jit`` function that adds two of its arguments to an address must not be called with one of them a
    constant 0. Numba links callees after LLVM has chosen one addend as the pointer and the rest as its offset; a
    pointer that is then known to be null makes the load undefined, and LLVM drops it with all that follows. Such
    helpers must be ``inlined``.
    """
    value = builder.load(builder.inttoptr(address, loaded.as_pointer()))
    value.align = align
    return value


def store_at(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, align: int = 1) -> None:
    """Store a value at an integer address."""
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = align


def row_address(builder: ir.IRBuilder, address: ir.Value, stride: ir.Value, row: int) -> ir.Value:
    """address + row · stride, both in bytes."""
    return builder.add(address, builder.mul(stride, ir.Constant(I64, row)))


def elementwise(name: str, operands: int, element: str, result: str, emit: Callable[..., ir.Value]) -> Any:
    """A word that acts lane by lane on ``operands`` values; one with m = 1 is repeated for the others' m rows."""

    def generate(arguments: Sequence[Any]) -> Any:
        if not all(isinstance(argument, Rows) and argument.element == element for argument in arguments):
            return None
        m = max(argument.m for argument in arguments)
        out = Rows(result, m)

        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[ir.Value]) -> ir.Value:
            columns = [
                unpack(builder, value, argument.m) * (m if argument.m == 1 else 1)
                for value, argument in zip(values, arguments, strict=True)
            ]
            return pack(builder, out, [emit(builder, *vectors) for vectors in zip(*columns, strict=True)])

        return out(*arguments), codegen

    # Numba reads the number of operands from the signature, hence one function for each.
    def unary(typing_context: Any, x: Any) -> Any:
        return generate([x])

    def binary(typing_context: Any, x: Any, y: Any) -> Any:
        return generate([x, y])

    def ternary(typing_context: Any, x: Any, y: Any, z: Any) -> Any:
        return generate([x, y, z])

    word = (unary, binary, ternary)[operands - 1]
    word.__name__ = word.__qualname__ = name
    return intrinsic(word)
