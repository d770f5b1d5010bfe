"""exp, log, sine and cosine: their error in units of the last place over the whole ranges that they state."""

from decimal import Decimal
from functools import partial

import numba
import numpy as np
import numpy.typing as npt

from cutaway.ops.cpu.math import add_exp, exp, log, sine_cosine
from cutaway.ops.simd import load, splat, store
from support.decimals import cos_sin
from support.exact import ulp_error


@numba.njit
def _exp(x: int, out: int, count: int) -> None:
    for i in range(0, 4 * count, 64):
        store(out + i, exp(load(x + i)))


@numba.njit
def _add_exp_to(total: float, x: int, out: int, count: int) -> None:
    for i in range(0, 4 * count, 64):
        store(out + i, add_exp(splat(np.float32(total)), load(x + i)))


@numba.njit
def _log(x: int, out: int, count: int) -> None:
    for i in range(0, 4 * count, 64):
        store(out + i, log(load(x + i)))


@numba.njit
def _sine_cosine(x: float) -> tuple[float, float]:
    return sine_cosine(x)  # type: ignore[no-any-return]


def through(function: object, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    assert x.size % 16 == 0
    out = np.full_like(x, np.nan)
    function(x.ctypes.data, out.ctypes.data, x.size)  # type: ignore[operator]
    return out


def every(step: int, low: float, high: float) -> npt.NDArray[np.float32]:
    """Every ``step``-th float32 from low to high, both of one sign, and the ends."""
    a, b = sorted(int(np.float32(end).view(np.uint32)) for end in (low, high))
    bits = np.concatenate([np.arange(a, b, step, dtype=np.uint32), np.array([a, b], np.uint32)])
    return np.resize(bits, -(-bits.size // 16) * 16).view(np.float32)


def test_exp_over_its_range() -> None:
    """Below 2 ulp of float32; a step of a prime, about a million values of each sign."""
    for x in (
        every(1021, 2.0**-30, 88.0),
        every(1021, -(2.0**-30), -87.0),
        np.linspace(-87, 88, 1 << 20, dtype=np.float32),
    ):
        error = ulp_error(through(_exp, x), np.exp(x.astype(np.longdouble)))
        assert error.max() < 2.0


def test_exp_is_clamped() -> None:
    x = np.array(
        [-1e30, -np.inf, -1000, -88, -87.00001, 88.00001, 89, 1000, np.inf, 3e38] + [0.0, -0.0] * 3, np.float32
    )
    got = through(_exp, x)
    low, high = through(_exp, np.array([-87.0] * 8 + [88.0] * 8, np.float32))[[0, 8]]
    assert (got[:5] == low).all()
    assert (got[5:10] == high).all()
    assert (got[10:] == 1.0).all()
    assert low < 2e-38
    assert np.isfinite(high)


def test_exp_is_monotonic_where_attention_needs_it() -> None:
    """e^0 is 1 and nothing below 0 exceeds it: a weight of the greatest score is the greatest weight."""
    x = every(509, -(2.0**-30), -87.0)
    assert through(_exp, x).max() <= 1.0


def test_the_power_that_is_added_over_its_range() -> None:
    """Below 2.5 ulp; e^0 is exactly 1, the others are none above it; what is lower than -87 counts as -87."""
    x = np.concatenate([every(1021, -(2.0**-30), -87.0), np.linspace(-87, 0, 1 << 20, dtype=np.float32)])
    powers = through(partial(_add_exp_to, 0.0), x)
    assert ulp_error(powers, np.exp(x.astype(np.longdouble))).max() < 2.5
    assert powers.max() <= 1.0
    ends = through(partial(_add_exp_to, 0.0), np.array([0.0, -0.0, -87.0, -88.0, -1e30, -np.inf] * 8, np.float32))
    assert (ends[:2] == 1.0).all()
    assert (ends[2:6] == powers[x == -87.0][0]).all()


def test_a_power_is_added_by_one_rounding() -> None:
    """The sum is that of the power, whose last product is exact, in float64, rounded to float32."""
    x = np.random.default_rng(0).uniform(-30, 0, 1 << 16).astype(np.float32)
    powers = through(partial(_add_exp_to, 0.0), x).astype(np.float64)
    for total in (1.0, 3.7, 1e-7, 49152.0):
        sums = through(partial(_add_exp_to, total), x)
        assert (sums == (np.float64(np.float32(total)) + powers).astype(np.float32)).all()


def test_log_over_its_range() -> None:
    """Below 2 ulp, for every kind of positive normal number, and dense around 1, where the result vanishes."""
    for x in (every(1021, np.finfo(np.float32).tiny, np.finfo(np.float32).max), every(13, 0.7, 1.42)):
        exact = np.log(x.astype(np.longdouble))
        assert ulp_error(through(_log, x), exact).max() < 2.0
    assert (through(_log, np.ones(16, np.float32)) == 0).all()


def test_sine_and_cosine_over_their_range() -> None:
    """Absolute error below 1e-14 up to 2²⁰, against decimals of 40 digits: at random, near multiples of π/2, ends."""
    rng = np.random.default_rng(0)
    multiples = np.arange(0, 667_000, 2221) * (np.pi / 2)
    points = np.concatenate(
        [
            rng.uniform(0, 2.0**20, 300),
            rng.uniform(0, 10, 300),
            multiples,
            np.nextafter(multiples, 1e9),
            [0, 1, 2.0**20 - 1],
        ]
    )
    for x in points:
        sine, cosine = _sine_cosine(float(x))
        exact_cosine, exact_sine = cos_sin(Decimal(float(x)))
        assert abs(Decimal(sine) - exact_sine) < Decimal("1e-14")
        assert abs(Decimal(cosine) - exact_cosine) < Decimal("1e-14")
