"""A NaN is never laundered: what is computed from one is NaN, wherever it stands, and the sampler refuses the row."""

import numpy as np
import pytest

from cutaway.ops.cpu.math import exp
from cutaway.ops.cpu.quantize import quantize_rows
from cutaway.ops.kernel_cache import jit
from cutaway.ops.simd import load, store
from support.activations import by_row, empty_activation
from support.teams import team_of


@pytest.mark.parametrize("place", [0, 1, 15, 16, 30, 31, 32, 63])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_quantised_block_with_a_bad_value_has_no_finite_scale(place: int, value: float) -> None:
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64)
    x[0, place] = value
    activation = empty_activation(1, 64)
    with team_of(1) as team:
        team.run(quantize_rows, x, activation)
    bad, scale = place // 32, by_row(activation.scale)[0]
    assert not np.isfinite(scale[bad])
    assert np.isfinite(scale[1 - bad])


@jit
def _exp(source: int, target: int) -> None:
    store(target, exp(load(source)))


def test_exp_of_nan_is_nan() -> None:
    x = np.zeros(16, np.float32)
    x[[0, 7, 15]] = np.nan
    out = np.zeros(16, np.float32)
    _exp(x.ctypes.data, out.ctypes.data)
    assert np.array_equal(np.isnan(out), np.isnan(x))
    assert (out[~np.isnan(x)] == 1).all()
