"""Words that act lane by lane: float32 arithmetic, int32 and uint8 bit work, conversions.

In and out: ``Rows`` values. Floating-point words are single IEEE operations (no contraction, no reassociation), so
that the kernels alone decide the order of every rounding.
"""

from llvmlite import ir

from cutaway.ops.simd.rows import I8, I16, I64, VECTOR_F32, VECTOR_I32, call_llvm, constant, elementwise

_VECTOR_I16 = ir.VectorType(I16, 32)
_VECTOR_I8 = ir.VectorType(I8, 64)
_VECTOR_I64 = ir.VectorType(I64, 16)

add = elementwise("add", 2, "f32", "f32", lambda b, x, y: b.fadd(x, y))
sub = elementwise("sub", 2, "f32", "f32", lambda b, x, y: b.fsub(x, y))
mul = elementwise("mul", 2, "f32", "f32", lambda b, x, y: b.fmul(x, y))
div = elementwise("div", 2, "f32", "f32", lambda b, x, y: b.fdiv(x, y))
fma = elementwise("fma", 3, "f32", "f32", lambda b, x, y, z: call_llvm(b, "llvm.fma.v16f32", x.type, x, y, z))
sqrt = elementwise("sqrt", 1, "f32", "f32", lambda b, x: call_llvm(b, "llvm.sqrt.v16f32", x.type, x))
absolute = elementwise("absolute", 1, "f32", "f32", lambda b, x: call_llvm(b, "llvm.fabs.v16f32", x.type, x))
round_even = elementwise("round_even", 1, "f32", "f32", lambda b, x: call_llvm(b, "llvm.rint.v16f32", x.type, x))


def _greater(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """x where x > y, else y: the second operand wins ties and NaN, on every processor alike."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def _smaller(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.select(b.fcmp_ordered("<", x, y), x, y)


maximum = elementwise("maximum", 2, "f32", "f32", _greater)
minimum = elementwise("minimum", 2, "f32", "f32", _smaller)

to_float = elementwise("to_float", 1, "i32", "f32", lambda b, x: b.sitofp(x, VECTOR_F32))
to_int = elementwise("to_int", 1, "f32", "i32", lambda b, x: b.fptosi(x, VECTOR_I32))
bits_as_float = elementwise("bits_as_float", 1, "i32", "f32", lambda b, x: b.bitcast(x, VECTOR_F32))
bits_as_int = elementwise("bits_as_int", 1, "f32", "i32", lambda b, x: b.bitcast(x, VECTOR_I32))

maximum_int = elementwise("maximum_int", 2, "i32", "i32", lambda b, x, y: b.select(b.icmp_signed(">", x, y), x, y))
add_int = elementwise("add_int", 2, "i32", "i32", lambda b, x, y: b.add(x, y))
sub_int = elementwise("sub_int", 2, "i32", "i32", lambda b, x, y: b.sub(x, y))
mul_int = elementwise("mul_int", 2, "i32", "i32", lambda b, x, y: b.mul(x, y))
xor_int = elementwise("xor_int", 2, "i32", "i32", lambda b, x, y: b.xor(x, y))
and_uint = elementwise("and_uint", 2, "i32", "i32", lambda b, x, y: b.and_(x, y))
shift_right = elementwise("shift_right", 2, "i32", "i32", lambda b, x, y: b.lshr(x, y))

replace_above = elementwise(
    "replace_above", 3, "i32", "i32", lambda b, x, limit, other: b.select(b.icmp_signed("<=", x, limit), x, other)
)
"""x where x ≤ limit, else other."""


def _multiply_high(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """The upper 32 bits of the 64-bit product of unsigned lanes."""
    product = b.mul(b.zext(x, _VECTOR_I64), b.zext(y, _VECTOR_I64))
    return b.trunc(b.lshr(product, constant(_VECTOR_I64, 32)), VECTOR_I32)


mul_high_uint = elementwise("mul_high_uint", 2, "i32", "i32", _multiply_high)


def _exponent(b: ir.IRBuilder, n: ir.Value) -> ir.Value:
    """2 to the power n for n in -126 … 127, by writing n + 127 into the exponent's bits; n's bits above the last 9 are
    shifted out.
    """
    return b.bitcast(b.shl(b.add(n, constant(n.type, 127)), constant(n.type, 23)), VECTOR_F32)


power_of_two = elementwise("power_of_two", 1, "i32", "f32", _exponent)


def _high(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    # There is no shift of bytes: shift 16-bit lanes, then drop what came over from the neighbour.
    wide = b.lshr(b.bitcast(x, _VECTOR_I16), constant(_VECTOR_I16, 4))
    return b.and_(b.bitcast(wide, _VECTOR_I8), constant(_VECTOR_I8, 15))


and_bytes = elementwise("and_bytes", 2, "u8", "u8", lambda b, x, y: b.and_(x, y))
or_bytes = elementwise("or_bytes", 2, "u8", "u8", lambda b, x, y: b.or_(x, y))
sub_bytes = elementwise("sub_bytes", 2, "u8", "u8", lambda b, x, y: b.sub(x, y))
shift_left_bytes = elementwise("shift_left_bytes", 2, "u8", "u8", lambda b, x, y: b.shl(x, y))
shift_right_bytes = elementwise("shift_right_bytes", 2, "u8", "u8", lambda b, x, y: b.lshr(x, y))
low_nibbles = elementwise("low_nibbles", 1, "u8", "u8", lambda b, x: b.and_(x, constant(x.type, 15)))
high_nibbles = elementwise("high_nibbles", 1, "u8", "u8", _high)
