"""Where the tokens of an answer looked: the attention of each head of each layer, sparse.

In: rows of attention probabilities, layer by layer while they are computed (``taps.attention_rows`` proves them). Out:
for each row and head the few positions that it attended most, and for each row the average over all heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cutaway.model.config import ModelConfig

MOST_OF_HEAD: Final = 4  # positions that are kept of a head
MOST_OF_AVERAGE: Final = 24
MOST_KEPT: Final = 500_000  # entries of all heads, rows and positions together: what bounds an explanation's size

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Looked:
    """Where one token looked from: the row that it was chosen from."""

    average: tuple[tuple[int, float], ...]  # position, probability, averaged over heads and layers; the largest first
    positions: npt.NDArray[np.int32]  # [L, H, k] of each head, the largest first; -1 where there are fewer
    probabilities: npt.NDArray[np.float32]  # [L, H, k]


def kept_of_head(rows: int, config: ModelConfig) -> int:
    """How many positions of each head are kept of so many rows: as many as the bound allows, 1 at least."""
    return max(1, min(MOST_OF_HEAD, MOST_KEPT // max(1, rows * config.num_layers * config.num_heads)))


class LookedRows:
    """Of consecutive rows, growing layer by layer."""

    def __init__(self, config: ModelConfig, start: int, num_rows: int, kept: int) -> None:
        """start: position of the first row. kept: positions of each head."""
        self._start, self._heads = start, config.num_layers * config.num_heads
        shape = num_rows, config.num_layers, config.num_heads, min(kept, start + num_rows)
        self._positions = np.full(shape, -1, np.int32)
        self._probabilities = np.zeros(shape, np.float32)
        self._sums = np.zeros((num_rows, start + num_rows))

    def add(self, layer: int, rows: slice, weights: Array) -> None:
        """Probabilities [k, H, C] of these rows in a layer, over the first positions."""
        self._sums[rows, : weights.shape[2]] += weights.sum(axis=1, dtype=np.float64)
        best = np.argsort(-weights, axis=-1, kind="stable")[..., : self._positions.shape[3]]  # the lowest among equals
        found, count = np.take_along_axis(weights, best, -1), best.shape[2]
        self._positions[rows, layer, :, :count] = np.where(found > 0, best, -1)
        self._probabilities[rows, layer, :, :count] = found

    def looked(self) -> list[Looked]:
        """Of each row, once all layers have been added."""
        return [
            Looked(_strongest(sums[: self._start + row + 1] / self._heads), positions, probabilities)
            for row, (sums, positions, probabilities) in enumerate(
                zip(self._sums, self._positions, self._probabilities, strict=True)
            )
        ]


def _strongest(average: Array) -> tuple[tuple[int, float], ...]:
    order: Sequence[int] = np.argsort(-average, kind="stable")[:MOST_OF_AVERAGE].tolist()
    return tuple((place, float(average[place])) for place in order if average[place] > 0)
