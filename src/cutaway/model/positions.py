"""Inverse frequencies of rotary positions (Su et al. 2021): base^(-2i/Dh) for each pair i.

In: the base and the head dimension. Out: float64 [Dh/2], computed in decimal arithmetic with 40 digits, since libm's
pow differs between machines in its last bit.
"""

import decimal

import numpy as np

from cutaway.ops.cpu.arrays import Doubles


def inverse_frequencies(base: float, head_dim: int) -> Doubles:
    """base^(-2i/Dh) for i = 0 … Dh/2 - 1, each the float64 nearest to the exact value."""
    with decimal.localcontext(decimal.Context(prec=40)):  # not the caller's: its rounding is not ours
        exact = [decimal.Decimal(base) ** (decimal.Decimal(-2 * i) / head_dim) for i in range(head_dim // 2)]
    return np.array([float(value) for value in exact], np.float64)
