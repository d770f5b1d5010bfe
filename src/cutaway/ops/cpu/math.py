"""Elementary functions as polynomials: exp, log, sine and cosine, the same bits on every machine.

In and out: ``Rows`` of float32 (exp, log), float64 scalars (sine and cosine of positions). libm and NumPy are not
used, since their results differ between versions and processors. Coefficients are those of the Cephes library (S.
Moshier, public domain); the reduction and the order of evaluation, written out here, are part of the numerical
contract.
"""

import math
from typing import Any, Final

import numpy as np

from cutaway.ops.kernel_cache import inner_jit, jit
from cutaway.ops.simd import (
    add,
    add_int,
    and_uint,
    bits_as_float,
    bits_as_int,
    fma,
    maximum,
    minimum,
    mul,
    power_of_two,
    shift_right,
    splat,
    splat_int,
    sub,
    sub_int,
    to_float,
)

f32 = np.float32

_EXP_LOW, _EXP_HIGH = f32(-87.0), f32(88.0)
_LOG2_E: Final = f32(1.44269504)
_SHIFT: Final = f32(1.5 * 2**23)
"""Added to a number of a magnitude below 2²², it leaves the nearest integer, ties to even, in the sum's last bits. The
bits above them are multiples of 2⁹ and are shifted out by ``power_of_two``.
"""
_LN2_HIGH, _LN2_LOW = f32(0.693359375), f32(-2.12194440e-4)  # their sum is ln 2; the high part has 9 bits
_E0, _E1, _E2, _E3, _E4, _E5 = (
    f32(c)
    for c in (
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
)


@inner_jit
def _reduced(x: Any) -> Any:
    """2ⁿ and r, where x = n · ln 2 + r and |r| ≤ ln 2 / 2, for x of -87 … 88."""
    shifted = add(mul(x, splat(_LOG2_E)), splat(_SHIFT))
    n = sub(shifted, splat(_SHIFT))
    return power_of_two(bits_as_int(shifted)), fma(n, splat(-_LN2_LOW), fma(n, splat(-_LN2_HIGH), x))


@inner_jit
def exp(x: Any) -> Any:
    """e to the power x for 16 float32 a row; x is clamped to -87 … 88, NaN stays NaN. Relative error below 2 ulp.

    x = n · ln 2 + r with |r| ≤ ln 2 / 2;  eˣ = 2ⁿ · (1 + r + r² · p(r)).
    """
    x = minimum(splat(_EXP_HIGH), maximum(splat(_EXP_LOW), x))  # in this order a NaN stays one
    scale, r = _reduced(x)
    p = fma(splat(_E0), r, splat(_E1))
    p = fma(p, r, splat(_E2))
    p = fma(p, r, splat(_E3))
    p = fma(p, r, splat(_E4))
    p = fma(p, r, splat(_E5))
    return fma(fma(p, mul(r, r), r), scale, scale)


_S0, _S1, _S2, _S3 = (f32(c) for c in (4.9999231626e-01, 1.6667114759e-01, 4.1890138389e-02, 8.3125009488e-03))


@inner_jit
def add_exp(total: Any, x: Any) -> Any:
    """total + e to the power x, for x ≤ 0: a term of a long sum, in three quarters of the operations of ``exp`` and an
    addition. x is clamped to -87. Relative error of the power below 2.5 ulp.

    The polynomial is 1 + r + r² · p(r) with p of the least degree, 3, whose own error is below 2⁻²³ (1.05 · 10⁻⁷),
    found by the Remez algorithm for the relative error over |r| ≤ ln 2 / 2. The last product is with a power of two and
    exact, so it makes no difference to the bits that it is fused with the addition.
    """
    x = maximum(splat(_EXP_LOW), x)
    scale, r = _reduced(x)
    p = fma(splat(_S3), r, splat(_S2))
    p = fma(p, r, splat(_S1))
    p = fma(p, r, splat(_S0))
    p = fma(fma(p, r, splat(f32(1.0))), r, splat(f32(1.0)))
    return fma(p, scale, total)


_SQRT_HALF_BITS: Final = 0x3F3504F3
_ONE_BITS: Final = 0x3F800000
_L = tuple(
    f32(c)
    for c in (
        7.0376836292e-2,
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    )
)
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = _L


@inner_jit
def log(x: Any) -> Any:
    """The natural logarithm of 16 positive, normal float32 a row. Relative error below 2 ulp.

    x = 2ᵉ · m with m in √½ … √2;  ln x = e · ln 2 + r - r²/2 + r³ · p(r), r = m - 1.
    """
    bits = bits_as_int(x)
    # Subtracting √½'s bits before taking the exponent puts the mantissa into √½ … √2.
    shifted = sub_int(bits, splat_int(_SQRT_HALF_BITS))
    exponent = sub_int(shift_right(add_int(shifted, splat_int(_ONE_BITS)), splat_int(23)), splat_int(127))
    mantissa = bits_as_float(add_int(and_uint(shifted, splat_int(0x007FFFFF)), splat_int(_SQRT_HALF_BITS)))
    r = sub(mantissa, splat(f32(1.0)))
    e = to_float(exponent)
    p = fma(splat(_L0), r, splat(_L1))
    p = fma(p, r, splat(_L2))
    p = fma(p, r, splat(_L3))
    p = fma(p, r, splat(_L4))
    p = fma(p, r, splat(_L5))
    p = fma(p, r, splat(_L6))
    p = fma(p, r, splat(_L7))
    p = fma(p, r, splat(_L8))
    square = mul(r, r)
    y = mul(mul(p, r), square)
    y = fma(e, splat(_LN2_LOW), y)
    y = fma(splat(f32(-0.5)), square, y)
    return fma(e, splat(_LN2_HIGH), add(r, y))


_TWO_OVER_PI: Final = 0.6366197723675814
_PI_2_HIGH, _PI_2_LOW = (
    1.5707963267341256,
    6.077100506506192e-11,
)  # π/2 in two parts; the high one has 33 bits


@jit
def sine_cosine(x: float) -> tuple[float, float]:
    """(sin x, cos x) in float64 for 0 ≤ x < 2²⁰; absolute error below 1e-14 at the upper end."""
    k = math.floor(x * _TWO_OVER_PI + 0.5)
    r = (x - k * _PI_2_HIGH) - k * _PI_2_LOW
    z = r * r
    s = 1.58969099521155010221e-10
    s = -2.50507602534068634195e-08 + z * s
    s = 2.75573137070700676789e-06 + z * s
    s = -1.98412698298579493134e-04 + z * s
    s = 8.33333333332248946124e-03 + z * s
    s = -1.66666666666666324348e-01 + z * s
    sine = r + r * z * s
    c = -1.13596475577881948265e-11
    c = 2.08757232129817482790e-09 + z * c
    c = -2.75573143513906633035e-07 + z * c
    c = 2.48015872894767294178e-05 + z * c
    c = -1.38888888888741095749e-03 + z * c
    c = 4.16666666666666019037e-02 + z * c
    cosine = 1.0 - 0.5 * z + z * z * c
    quadrant = np.int64(k) & 3
    if quadrant == 0:
        return sine, cosine
    if quadrant == 1:
        return cosine, -sine
    if quadrant == 2:
        return -sine, -cosine
    return -cosine, sine
