"""Comparison bit by bit, which sees what == does not: the sign of zero, and NaN.

In: arrays of one type and shape. Out: how many elements differ in their bits.
"""

from typing import Any

import numpy as np
import numpy.typing as npt


def differing(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> int:
    """The number of elements whose bits differ. Arrays of different type or shape don't compare."""
    assert a.dtype == b.dtype, f"{a.dtype} and {b.dtype}"
    assert a.shape == b.shape, f"{a.shape} and {b.shape}"
    integers = np.dtype(f"u{a.dtype.itemsize}")
    return int((np.ascontiguousarray(a).view(integers) != np.ascontiguousarray(b).view(integers)).sum())


def assert_same_floats(got: npt.NDArray[Any], expected: npt.NDArray[Any]) -> None:
    """The same bits, but that any NaN is as good as another: IEEE 754 leaves its payload open."""
    assert got.dtype == expected.dtype
    both_nan = np.isnan(got) & np.isnan(expected)
    wrong = np.flatnonzero((got.view(f"u{got.dtype.itemsize}") != expected.view(f"u{got.dtype.itemsize}")) & ~both_nan)
    assert wrong.size == 0, f"{wrong.size} differ, first at {wrong[0]}: {got[wrong[0]]!r} is not {expected[wrong[0]]!r}"
