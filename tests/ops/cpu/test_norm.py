"""RMS normalisation against float64, and its input left alone."""

import numpy as np
import pytest

from cutaway.ops.cpu import rms_norm
from support.bits import differing
from support.teams import run


@pytest.mark.parametrize(("T", "D"), [(1, 16), (3, 16 * 7), (5, 16 * 11), (17, 576)])
@pytest.mark.parametrize("magnitude", [1e-12, 1e-3, 1.0, 1e4, 1e15])
def test_against_float64(T: int, D: int, magnitude: float) -> None:
    rng = np.random.default_rng(T)
    x = (rng.standard_normal((T, D)) * magnitude).astype(np.float32)
    weight = rng.standard_normal(D).astype(np.float32)
    before, out = x.copy(), np.full((T + 1, D), np.nan, np.float32)
    run(rms_norm, x, weight, np.float32(1e-5), out[:T], threads=2)
    exact = x.astype(np.float64)
    exact = exact / np.sqrt((exact**2).mean(axis=1, keepdims=True) + float(np.float32(1e-5))) * weight
    assert (np.abs(out[:T] - exact) <= 1e-6 * np.abs(exact)).all()
    assert differing(x, before) == 0, "the input was changed: it is the residual stream"
    assert np.isnan(out[T]).all()


def test_epsilon_lies_inside_the_root() -> None:
    """Where the mean square is far below ε, x / √ε; x / (rms + ε) or x / √mean would be elsewhere."""
    x, weight = np.full((1, 32), 1e-6, np.float32), np.ones(32, np.float32)
    out = np.zeros_like(x)
    run(rms_norm, x, weight, np.float32(1e-2), out)
    assert np.allclose(out, 1e-5, rtol=1e-6, atol=0)
    x[:] = 0
    run(rms_norm, x, weight, np.float32(1e-5), out)
    assert not out.any()


def test_same_bits_for_any_threads_and_neighbours() -> None:
    rng = np.random.default_rng(1)
    x, weight = rng.standard_normal((13, 16 * 5)).astype(np.float32), rng.standard_normal(16 * 5).astype(np.float32)
    alone = np.zeros_like(x)
    for t in range(13):
        run(rms_norm, x[t : t + 1], weight, np.float32(1e-5), alone[t : t + 1])
    for threads in (1, 2, 3):
        out = np.zeros_like(x)
        run(rms_norm, x, weight, np.float32(1e-5), out, threads=threads)
        assert differing(out, alone) == 0
