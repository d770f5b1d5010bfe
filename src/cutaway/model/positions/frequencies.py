"""Inverse frequencies of rotary positions (Su et al. 2021): base^(-2i/R) for each pair i of the R numbers turned.

In: the base and R. Out: exact values as decimals of 40 digits, or the nearest float64, since libm's pow differs
between machines in its last bit.
"""

import decimal
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from cutaway.ops.cpu.arrays import Doubles

ARITHMETIC = decimal.Context(prec=40)  # not the caller's: its rounding is not ours


def exact_frequencies(base: Decimal, width: int) -> list[Decimal]:
    """base^(-2i/R) for i = 0 … R/2 - 1, in the current decimal context."""
    return [base ** (Decimal(-2 * i) / width) for i in range(width // 2)]


def nearest(values: Sequence[Decimal]) -> Doubles:
    """Each as the nearest float64."""
    return np.array([float(value) for value in values], np.float64)


def inverse_frequencies(base: float, width: int) -> Doubles:
    """base^(-2i/R) for i = 0 … R/2 - 1, float64 [R/2], each the nearest to the exact value."""
    with decimal.localcontext(ARITHMETIC):
        return nearest(exact_frequencies(Decimal(base), width))
