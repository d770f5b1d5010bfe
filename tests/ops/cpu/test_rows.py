"""Row moves, activations and soft caps against their definitions."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cutaway.ops.cpu import activate, add_positions, add_rows, softcap, take_rows
from cutaway.ops.cpu.activation import GELU, SILU
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


def silu(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    result: npt.NDArray[np.float64] = x / (1 + np.exp(-x))
    return result


def gelu(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    result: npt.NDArray[np.float64] = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return result


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize(("kind", "exact", "relative"), [(SILU, silu, 1e-6), (GELU, gelu, 2e-5)])
@pytest.mark.parametrize(("T", "F"), [(1, 16), (3, 16 * 5), (5, 256), (7, 256 + 16), (2, 256 * 3 + 112)])
def test_activations_against_float64(T: int, F: int, kind: int, exact: Any, relative: float, gated: bool) -> None:
    """Far below zero GELU is e^-z, whose relative error grows with z; there it is next to nothing."""
    rng = np.random.default_rng(F)
    gate_up = (rng.standard_normal((T, (1 + gated) * F)) * 6).astype(np.float32)
    if kind == SILU:
        gate_up[0, :8] = [0.0, -0.0, 30, -30, 86, -86, 87.5, 1e-20]
    else:
        gate_up[0, :8] = [0.0, -0.0, 30, -4, 3, -3, 1e3, 1e-20]
        gate_up[:, :F] = np.maximum(gate_up[:, :F], -4)
    before, out = gate_up.copy(), np.full((T + 1, F), np.nan, np.float32)
    run(activate, gate_up, kind, out[:T], threads=2)
    wide = gate_up.astype(np.float64)
    expected = exact(wide[:, :F]) * wide[:, F:] if gated else exact(wide)
    # Near -4 the definition itself, in float64, loses digits to 1 + tanh.
    assert (np.abs(out[:T] - expected) <= relative * np.abs(expected)).all()
    assert differing(gate_up, before) == 0
    assert np.isnan(out[T]).all()


@pytest.mark.parametrize("kind", [SILU, GELU])
def test_activations_of_extremes(kind: int) -> None:
    """The limits: 0 from below, the number itself from above; e^88 is the greatest that is computed."""
    gate_up = np.ones((1, 32), np.float32)
    gate_up[0, :4] = [-1e4, -100, 100, 1e30]
    out = np.zeros((1, 16), np.float32)
    run(activate, gate_up, kind, out)
    assert np.abs(out[0, :2]).max() < 1e-33
    assert out[0, 2:4].tolist() == [100, np.float32(1e30)]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_softcap(threads: int) -> None:
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((5, 16 * 7)) * 40).astype(np.float32)
    x[0, :5] = [0.0, 1e30, -1e30, 1e-20, np.nan]
    exact = 30 * np.tanh(x.astype(np.float64) / 30)
    got = x.copy()
    run(softcap, got, np.float32(30), threads=threads)
    assert np.isnan(got[0, 4])
    assert np.nanmax(np.abs(got - exact)) <= 3e-7 * 30
    before = x.copy()
    run(softcap, x, np.float32(0), threads=threads)
    assert differing(x, before) == 0


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_positions_rows_are_added(threads: int) -> None:
    rng = np.random.default_rng(6)
    x, rows = rng.standard_normal((7, 48)).astype(np.float32), rng.standard_normal((11, 48)).astype(np.float32)
    positions = np.array([10, 0, 3, 3, 7, 8, 9], np.int32)
    expected = x + rows[positions]
    run(add_positions, rows, positions, x, threads=threads)
    assert differing(x, expected) == 0
    run(add_positions, np.zeros((0, 48), np.float32), positions, x, threads=threads)
    assert differing(x, expected) == 0
