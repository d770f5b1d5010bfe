"""Where the tokens of an answer looked: the attention of each head of each layer, sparse.

In: queries of rows, the keys and values of all positions before, what the engine's attention gave. Out: for each row
and head the few positions that it attended most, and for each row the average over all heads. The probabilities are
derived in float64 (``audit.walk.attention``); how far they are, with the values, from the engine's own results is told.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cutaway.audit.explain.replay import OpenRows, Replay
from cutaway.audit.walk.attention import ScoreRule, probabilities_of_rows, weighted_values_of_rows
from cutaway.model.config import ModelConfig

MOST_OF_HEAD: Final = 4  # positions that are kept of a head
MOST_OF_AVERAGE: Final = 24
MOST_KEPT: Final = 500_000  # entries of all heads, rows and positions together: what bounds an explanation's size
MOST_AT_ONCE: Final = 4_000_000  # probabilities in memory

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


def see_attention(config: ModelConfig, replay: Replay, rows: OpenRows, kept: int) -> tuple[list[Looked], float]:
    """For each row, and the greatest difference between the engine's results and those of the probabilities."""
    L, T, H, _ = rows.queries.shape
    C = rows.start + T
    count = min(kept, C)
    positions = np.full((T, L, H, count), -1, np.int32)
    probabilities = np.zeros((T, L, H, count), np.float32)
    average = np.zeros((T, C))
    difference = 0.0
    at_once = max(1, MOST_AT_ONCE // (H * C))
    for layer in range(L):
        rule = ScoreRule(config.windows[layer], config.attention_scale, config.attention_cap)
        keys = replay.keys(layer, C).astype(np.float64)
        values = replay.values(layer, C).astype(np.float64)
        for first in range(0, T, at_once):
            part = slice(first, min(T, first + at_once))
            places = np.arange(rows.start, rows.start + T)[part]
            found = probabilities_of_rows(rows.queries[layer, part].astype(np.float64), keys, places, rule)
            mixed = weighted_values_of_rows(found, values)
            difference = max(difference, float(np.abs(mixed - rows.attended[layer, part]).max()))
            average[part] += found.sum(axis=1)
            best = _largest(found, count)
            positions[part, layer] = np.where(np.take_along_axis(found, best, -1) > 0, best, -1)
            probabilities[part, layer] = np.take_along_axis(found, best, -1)
    average /= L * H
    return [
        Looked(_strongest(average[t, : rows.start + t + 1]), positions[t], probabilities[t]) for t in range(T)
    ], difference


def _largest(found: Array, count: int) -> Array:
    """Places of the ``count`` largest along the last axis, the largest first, the lowest place first among equals."""
    order: Array = np.argsort(-found, axis=-1, kind="stable")[..., :count]
    return order


def _strongest(average: Array) -> tuple[tuple[int, float], ...]:
    order: Sequence[int] = np.argsort(-average, kind="stable")[:MOST_OF_AVERAGE].tolist()
    return tuple((place, float(average[place])) for place in order if average[place] > 0)
