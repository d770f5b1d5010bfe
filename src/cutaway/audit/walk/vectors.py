"""Vectors for display: one in a few numbers, and logits as log-probabilities.

In: an array. Out: its length and its range; where its largest numbers are; ln of probabilities, in float64 by NumPy,
which the engine never uses.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Spread:
    """How large the numbers of a vector are."""

    norm: float  # its length: the root of the sum of squares
    rms: float  # the root of the mean of squares: how large one number typically is
    least: float
    greatest: float


def spread(vector: npt.NDArray[Any]) -> Spread:
    """vector: [N], N ≥ 1, of any type of numbers; computed in float64."""
    numbers = vector.astype(np.float64)
    squares = float(numbers @ numbers)
    return Spread(squares**0.5, (squares / len(numbers)) ** 0.5, float(numbers.min()), float(numbers.max()))


def log_softmax(logits: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """ln of the probabilities [V]; -∞ for a logit of -∞. At least one logit is finite, none is NaN."""
    shifted = logits.astype(np.float64) - float(logits.max())
    result: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return result


def largest(numbers: npt.NDArray[Any], count: int) -> list[int]:
    """Where the ``count`` largest of numbers [N] are, the largest first, the lower place first among equals."""
    if count < len(numbers):
        places = np.flatnonzero(numbers >= np.partition(numbers, -count)[-count])
    else:
        places = np.arange(len(numbers))
    order: list[int] = places[np.argsort(-numbers[places], kind="stable")][:count].tolist()
    return order
