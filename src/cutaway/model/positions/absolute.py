"""Positions as rows that are added to the embedding: learned ones, and the sinusoids of the first Transformer.

In: a file's table, or sizes. Out: ``Positions`` without rotation.
"""

import numpy as np

from cutaway.model.positions.frequencies import inverse_frequencies
from cutaway.model.positions.tables import Positions, no_rotation
from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.math import sine_cosine

SINUSOID_BASE = 10_000.0


def learned(rows: Floats) -> Positions:
    """The file's own rows [P, D]; there is no position beyond them."""
    return Positions(np.ascontiguousarray(rows, np.float32), *no_rotation())


def sinusoidal(count: int, width: int) -> Positions:
    """rows[p, 2i] = sin(p / 10000^(2i/D)), rows[p, 2i + 1] its cosine (Vaswani et al. 2017, section 3.5)."""
    rows = np.zeros((count, width), np.float32)
    for i, frequency in enumerate(inverse_frequencies(SINUSOID_BASE, width).tolist()):
        for position in range(count):
            rows[position, 2 * i : 2 * i + 2] = sine_cosine(position * frequency)
    return learned(rows)
