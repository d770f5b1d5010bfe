"""Exact arithmetic: results rounded once, and distances in units of the last place.

In: fractions, decimals, float32 arrays. Out: the nearest float32, or errors in ulp.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

SMALLEST_EXPONENT = -149  # the exponent of float32's last place around zero


def nearest_float32(x: Fraction) -> np.float32:
    """The float32 nearest to a rational number, ties to even; beyond the greatest one, infinity."""
    if x == 0:
        return np.float32(0)
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    if abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    last_place = Fraction(2) ** max(exponent - 23, SMALLEST_EXPONENT)
    with np.errstate(over="ignore"):
        return np.float32(float(round(x / last_place) * last_place))


def ulp_error(got: npt.NDArray[np.float32], exact: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """|got - exact| in units of the last place of exact (float64 or longdouble) as a normal float32."""
    _, exponent = np.frexp(exact.astype(np.float64))
    last_place = np.ldexp(1.0, np.maximum(exponent - 24, SMALLEST_EXPONENT))
    return (np.abs(got.astype(exact.dtype) - exact) / last_place).astype(np.float64)
