"""Activations to int8 against exact arithmetic: half a step at most, ties to even, and blocks of any magnitude."""

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cutaway.ops.cpu import quantize_rows
from cutaway.ops.cpu.arrays import Activation
from cutaway.ops.cpu.quantize import LEAST
from support.activations import by_row, empty_activation
from support.bits import differing
from support.teams import run


def quantize(x: npt.NDArray[np.float32], threads: int = 1) -> Activation:
    """The operation's result, row by row and cut to x's shape; that it wrote nothing else is checked."""
    T, K = x.shape
    before = x.copy()
    activation = empty_activation(T + 1, K + 64)
    run(quantize_rows, x, activation, threads=threads)
    assert differing(x, before) == 0, "the input was changed"
    assert (activation.q[T:] == 99).all()
    assert (activation.q[:, K:] == 99).all()
    scale, blocks = by_row(activation.scale), K // 32
    assert np.isnan(scale[T:]).all()
    assert np.isnan(scale[:, blocks:]).all()
    return Activation(activation.q[:T, :K], *(by_row(field)[:T, :blocks] for field in activation[1:]))


def check(x: npt.NDArray[np.float32]) -> None:
    """|x - scale · q| ≤ half a step, a little more for the roundings of scale and 1/scale; the sums are q's."""
    result = quantize(x)
    T = len(x)
    q = result.q.reshape(T, -1, 32).astype(np.int64)
    scale = result.scale.astype(np.float64)[..., None]
    largest = np.abs(x.reshape(T, -1, 32)).max(axis=2)
    largest[largest < LEAST] = 0
    tiny = np.where(largest[..., None] == 0, float(LEAST), 0.0)
    error = np.abs(q * scale - x.reshape(T, -1, 32).astype(np.float64))
    assert (error <= scale * (0.5 + 1e-4) + tiny).all()
    assert (np.abs(q) <= 127).all()
    assert np.array_equal(result.scale, largest / np.float32(127))
    assert np.array_equal(result.block_sum, q.sum(axis=2))
    with np.errstate(over="ignore"):
        assert np.array_equal(result.scaled_sum, result.scale * q.sum(axis=2).astype(np.float32))
    assert (np.abs(q).max(axis=2) == np.where(largest == 0, 0, 127)).all(), "the range isn't used"


@pytest.mark.parametrize(("T", "K"), [(1, 32), (3, 32 * 17), (7, 32 * 5), (13, 32 * 33)])
def test_rows_of_any_shape(T: int, K: int) -> None:
    rng = np.random.default_rng(T)
    x = (rng.standard_normal((T, K)) * np.repeat(10.0 ** rng.uniform(-30, 30, (T, K // 32)), 32, axis=1)).astype(
        np.float32
    )
    check(x)


@settings(max_examples=200, deadline=None)
@given(arrays.arrays(np.float32, (1, 64), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_any_finite_values(x: npt.NDArray[np.float32]) -> None:
    check(x)


def test_zeros_have_scale_zero() -> None:
    x = np.zeros((2, 64), np.float32)
    x[1, :32] = -0.0
    for field in quantize(x):
        assert not field.any()


@pytest.mark.parametrize("largest", [1e-45, 3e-42, 1.1754942e-38, 1.2e-38, 3.7e-37, 3.8e-37, 1e-36])
def test_tiny_blocks(largest: float) -> None:
    """Where 127 / largest would overflow (below 3.7e-37), a block is zeros, not what an infinity converts to."""
    x = np.linspace(-1, 1, 32, dtype=np.float32)[None] * np.float32(largest)
    check(x)


def test_one_huge_value() -> None:
    x = np.full((1, 32), 1e-3, np.float32)
    x[0, 17] = np.finfo(np.float32).max
    result = quantize(x)
    assert result.q[0, 17] == 127
    assert np.count_nonzero(result.q) == 1
    check(x)


def test_ties_go_to_even() -> None:
    """With a greatest value of 127 the scale is 1, and x.5 are ties."""
    x = np.zeros((1, 64), np.float32)
    x[0, :8] = [127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5]
    x[0, 32:40] = [-127, 63.5, 64.5, -63.5, -64.5, 3.4999998, 3.5000002, 0]
    q = quantize(x).q[0]
    assert q[:8].tolist() == [127, 0, 2, 2, 0, -2, -2, 126]
    assert q[32:40].tolist() == [-127, 64, 64, -64, -64, 3, 4, 0]


def test_every_element_is_the_nearest_step_of_the_documented_product() -> None:
    """round(x · (127 / max|x|)), where quotient and product are float32: exact arithmetic, rounded where they are."""
    x = np.random.default_rng(9).standard_normal((5, 96)).astype(np.float32)
    q = quantize(x).q
    for t in range(5):
        for block in range(3):
            values = x[t, 32 * block : 32 * block + 32]
            inverse = np.float32(127) / np.abs(values).max()
            for k, value in enumerate(values):
                assert q[t, 32 * block + k] == round(Fraction(float(np.float32(value * inverse))))


def test_same_bits_for_any_threads_and_neighbours() -> None:
    x = np.random.default_rng(10).standard_normal((11, 32 * 37)).astype(np.float32)
    whole = quantize(x)
    for threads in (2, 3):
        for ours, theirs in zip(whole, quantize(x, threads), strict=True):
            assert differing(ours, theirs) == 0
    for ours, theirs in zip(whole, quantize(x[4:5]), strict=True):
        assert differing(ours[4:5], theirs) == 0
