"""Row moves and the gated activation against their definitions."""

import numpy as np
import pytest

from cutaway.ops.cpu import add_rows, silu_mul, take_rows
from support.bits import differing
from support.teams import run


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_add_rows_is_one_float32_addition(threads: int) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 7, 83)).astype(np.float32)
    expected, y_before = x + y, y.copy()
    run(add_rows, x, y, threads=threads)
    assert differing(x, expected) == 0
    assert differing(y, y_before) == 0


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_take_rows_copies(threads: int) -> None:
    x = np.random.default_rng(1).standard_normal((11, 29)).astype(np.float32)
    rows = np.array([10, 0, 3, 3, 7], np.int32)
    out = np.full((6, 29), np.nan, np.float32)
    run(take_rows, x, rows, out[:5], threads=threads)
    assert differing(out[:5], x[rows]) == 0
    assert np.isnan(out[5]).all()


def test_take_rows_of_none() -> None:
    """A step whose chunks end before their prompts wants no logits."""
    x, out = np.ones((3, 16), np.float32), np.zeros((0, 16), np.float32)
    run(take_rows, x, np.zeros(0, np.int32), out, threads=2)


@pytest.mark.parametrize(("T", "F"), [(1, 16), (3, 16 * 5), (5, 256), (7, 256 + 16), (2, 256 * 3 + 112)])
def test_silu_mul_against_float64(T: int, F: int) -> None:
    rng = np.random.default_rng(F)
    gate_up = (rng.standard_normal((T, 2 * F)) * 6).astype(np.float32)
    gate_up[0, :8] = [0.0, -0.0, 30, -30, 86, -86, 87.5, 1e-20]
    before, out = gate_up.copy(), np.full((T + 1, F), np.nan, np.float32)
    run(silu_mul, gate_up, out[:T], threads=2)
    gate, up = gate_up[:, :F].astype(np.float64), gate_up[:, F:].astype(np.float64)
    exact = gate / (1 + np.exp(-gate)) * up
    assert (np.abs(out[:T] - exact) <= 1e-6 * np.abs(exact)).all()
    assert differing(gate_up, before) == 0
    assert np.isnan(out[T]).all()


def test_silu_mul_of_extremes() -> None:
    """The gate's limits: 0 from below, the gate itself from above; e^88 is the greatest that is computed."""
    gate_up = np.ones((1, 32), np.float32)
    gate_up[0, :4] = [-1e4, -100, 100, 1e30]
    out = np.zeros((1, 16), np.float32)
    run(silu_mul, gate_up, out)
    assert np.abs(out[0, :2]).max() < 1e-33
    assert out[0, 2:4].tolist() == [100, np.float32(1e30)]
