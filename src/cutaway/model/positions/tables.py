"""What every piece of positions gives and the forward reads.

In: nothing. Out: the type ``Positions``, and its empty parts.
"""

from typing import NamedTuple

import numpy as np

from cutaway.ops.cpu.arrays import Doubles, Floats


class Positions(NamedTuple):
    """Rows to be added to the embedding, and tables of rotary angles; P, or G and R, are 0 where there are none."""

    rows: Floats  # [P, D]
    inverse_frequencies: Doubles  # [G, R/2] radians a position, of the pairs of R numbers of a head
    magnitudes: Doubles  # [G] by which a table's cosines and sines are multiplied


def no_rows(width: int) -> Floats:
    """[0, D]."""
    return np.zeros((0, width), np.float32)


def no_rotation() -> tuple[Doubles, Doubles]:
    """``inverse_frequencies`` [0, 0] and ``magnitudes`` [0]."""
    return np.zeros((0, 0), np.float64), np.zeros(0, np.float64)
