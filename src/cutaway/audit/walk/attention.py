"""Where a token looks: how much of the last position's attention goes to which position.

In: its attention probabilities, as ``taps.attention_rows`` derives and proves them. Out: for each head, and on average,
the positions that are attended most.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cutaway.audit.walk.tokens import SeenToken
from cutaway.audit.walk.vectors import largest

Array = npt.NDArray[Any]


STRONGEST: Final = 8
STRONGEST_OF_HEAD: Final = 5


@dataclass(frozen=True)
class Look:
    """One position that a token attends, and how much."""

    position: int
    id: int
    piece: str
    distance: int  # positions back; 0 is the token itself
    probability: float


@dataclass(frozen=True)
class LooksOfHead:
    """One query head."""

    head: int
    kv_head: int  # whose keys and values it reads
    first: float  # probability of position 0
    itself: float  # of the token's own position
    strongest: tuple[Look, ...]


@dataclass(frozen=True)
class Looks:
    """Several heads, averaged."""

    first: float  # probability of position 0
    itself: float  # of the token's own position
    strongest: tuple[Look, ...]  # the largest first
    probabilities: tuple[float, ...]  # [C] of all positions; they sum to 1


@dataclass(frozen=True)
class SeenAttention:
    """The attention of one layer, at the last position."""

    average: Looks  # over the heads
    heads: tuple[LooksOfHead, ...]


def strongest_looks(probabilities: Array, tokens: Sequence[SeenToken], count: int) -> tuple[Look, ...]:
    """The ``count`` positions with the largest probability [C], the lowest position first among equals."""
    last = len(probabilities) - 1
    return tuple(
        Look(p, tokens[p].id, tokens[p].piece, last - p, float(probabilities[p])) for p in largest(probabilities, count)
    )


def average_looks(probabilities: Array, tokens: Sequence[SeenToken]) -> Looks:
    """Of heads, or of layers: probabilities [N, C], averaged over N."""
    mean = probabilities.mean(axis=0, dtype=np.float64)
    return Looks(float(mean[0]), float(mean[-1]), strongest_looks(mean, tokens, STRONGEST), tuple(mean.tolist()))


def see_attention(probabilities: Array, num_kv_heads: int, tokens: Sequence[SeenToken]) -> SeenAttention:
    """The last position's attention. probabilities: [H, C]; tokens: C at least."""
    group = len(probabilities) // num_kv_heads
    heads = tuple(
        LooksOfHead(head, head // group, float(row[0]), float(row[-1]), strongest_looks(row, tokens, STRONGEST_OF_HEAD))
        for head, row in enumerate(probabilities)
    )
    return SeenAttention(average_looks(probabilities, tokens), heads)
