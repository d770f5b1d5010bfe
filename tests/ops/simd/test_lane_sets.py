"""The words about sets of lanes, and the replacement of integers above a limit, against NumPy."""

import numba
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cutaway.ops.simd import count_lanes, first_lane, lanes_at_most, load, load_int, replace_above, store_int

LANE_BITS = 1 << np.arange(16)
INT32 = st.integers(-(2**31), 2**31 - 1)


@numba.njit
def _floats(x, y):
    return lanes_at_most(load(x.ctypes.data), load(y.ctypes.data))


@numba.njit
def _ints(x, y):
    return lanes_at_most(load_int(x.ctypes.data), load_int(y.ctypes.data))


@numba.njit
def _first(lanes):
    return first_lane(lanes)


@numba.njit
def _count(lanes: int) -> int:
    return count_lanes(lanes)


@numba.njit
def _replace(x, limit, other, out):
    words = load_int(x.ctypes.data), load_int(limit.ctypes.data), load_int(other.ctypes.data)
    store_int(out.ctypes.data, replace_above(words[0], words[1], words[2]))


@given(st.lists(st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 1e-45, 1.0, np.inf, np.nan]), min_size=32, max_size=32))
def test_lanes_at_most_of_floats(values: list[float]) -> None:
    x, y = np.array(values, np.float32).reshape(2, 16)
    assert _floats(x, y) == (LANE_BITS * (x <= y)).sum()


@given(st.lists(INT32, min_size=48, max_size=48))
def test_integer_words(values: list[int]) -> None:
    x, limit, other = np.array(values, np.int32).reshape(3, 16)
    assert _ints(x, limit) == (LANE_BITS * (x <= limit)).sum()
    assert _ints(x, x) == 0xFFFF
    out = np.zeros(16, np.int32)
    _replace(x, limit, other, out)
    assert (out == np.where(x <= limit, x, other)).all()


@given(st.integers(1, 2**64 - 1))
def test_first_lane(lanes: int) -> None:
    signed = lanes - (1 << 64) if lanes >> 63 else lanes
    assert _first(signed) == (lanes & -lanes).bit_length() - 1


@given(st.integers(0, 2**64 - 1))
def test_count_lanes(lanes: int) -> None:
    signed = lanes - (1 << 64) if lanes >> 63 else lanes
    assert _count(signed) == bin(lanes).count("1")
