"""Inverse frequencies are the float64 nearest to base^(-2i/Dh), shown in exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from cutaway.model.positions import inverse_frequencies


@pytest.mark.parametrize("base", [10_000.0, 100_000.0, 500_000.0, 1_000_000.0, 10_000.5])
@pytest.mark.parametrize("head_dim", [16, 48, 64, 80, 128])
def test_each_is_the_nearest_float64(base: float, head_dim: int) -> None:
    """x is nearest to b^(-2i/d) if and only if the midpoints to its neighbours, raised to d, lie around b^(-2i)."""
    frequencies = inverse_frequencies(base, head_dim)
    assert frequencies.dtype == np.float64
    assert frequencies.shape == (head_dim // 2,)
    assert frequencies[0] == 1.0
    for i, x in enumerate(frequencies.tolist()):
        below, above = ((Fraction(x) + Fraction(float(np.nextafter(x, end)))) / 2 for end in (0.0, 2.0))
        assert below**head_dim <= Fraction(base) ** (-2 * i) <= above**head_dim
