"""Where a token looks: the attention probabilities of the last position, computed again in float64.

In: a token's rotated queries, the keys and values that the cache holds for its sequence, what the engine's attention
gave. Out: for each head, and on average, how much of the token's attention goes to which position.

The engine never has these probabilities as an array: it works tile by tile and keeps weighted sums only. So they are
derived from the same q and K; that probabilities · V gives the engine's own output is the proof (``difference``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.audit.walk.tokens import SeenToken
from cutaway.audit.walk.vectors import largest

Doubles = npt.NDArray[np.float64]


class ScoreRule(NamedTuple):
    """How a layer's scores come from q·k."""

    window: int  # positions attended; 0: all
    scale: float
    cap: float  # soft; 0: none


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
    difference: float  # largest |probabilities · V - the engine's output|


def probabilities_of_rows(
    queries: Doubles, keys: Doubles, positions: npt.NDArray[np.int64], rule: ScoreRule
) -> Doubles:
    """softmax(scale · q·k), [T, H, C], 0 behind a row's own position and before its window.

    queries: [T, H, Dh]; keys: [C, Hkv, Dh]; positions: [T]. Head h reads KV head h // (H / Hkv).
    """
    T, num_heads, head_dim = queries.shape
    C, num_kv_heads, _ = keys.shape
    grouped = queries.reshape(T, num_kv_heads, -1, head_dim).swapaxes(0, 1).reshape(num_kv_heads, -1, head_dim)
    products = grouped @ keys.transpose(1, 2, 0)  # [Hkv, T · group, C]
    scores = products.reshape(num_kv_heads, T, -1, C).swapaxes(0, 1).reshape(T, num_heads, C) * rule.scale
    if rule.cap:
        scores = rule.cap * np.tanh(scores / rule.cap)
    distance = positions[:, None] - np.arange(C)
    hidden = distance < 0
    if rule.window:
        hidden |= distance >= rule.window
    scores = np.where(hidden[:, None], -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities: Doubles = weights / weights.sum(axis=-1, keepdims=True)
    return probabilities


def attention_probabilities(queries: Doubles, keys: Doubles, rule: ScoreRule) -> Doubles:
    """The last position's, [H, C]; queries: [H, Dh], keys: [C, Hkv, Dh]."""
    found: Doubles = probabilities_of_rows(queries[None], keys, np.array([len(keys) - 1]), rule)[0]
    return found


def weighted_values_of_rows(probabilities: Doubles, values: Doubles) -> Doubles:
    """Σ probability · value, [T, H, Dh]; probabilities: [T, H, C], values: [C, Hkv, Dh]."""
    T, num_heads, C = probabilities.shape
    num_kv_heads = values.shape[1]
    grouped = probabilities.reshape(T, num_kv_heads, -1, C).swapaxes(0, 1).reshape(num_kv_heads, -1, C)
    mixed = (grouped @ values.swapaxes(0, 1)).reshape(num_kv_heads, T, num_heads // num_kv_heads, -1)
    result: Doubles = mixed.swapaxes(0, 1).reshape(T, num_heads, -1)
    return result


def weighted_values(probabilities: Doubles, values: Doubles) -> Doubles:
    """Of one row: [H, Dh]; probabilities: [H, C], values: [C, Hkv, Dh]."""
    mixed: Doubles = weighted_values_of_rows(probabilities[None], values)[0]
    return mixed


def strongest_looks(probabilities: Doubles, tokens: Sequence[SeenToken], count: int) -> tuple[Look, ...]:
    """The ``count`` positions with the largest probability [C], the lowest position first among equals."""
    last = len(probabilities) - 1
    return tuple(
        Look(p, tokens[p].id, tokens[p].piece, last - p, float(probabilities[p])) for p in largest(probabilities, count)
    )


def average_looks(probabilities: Doubles, tokens: Sequence[SeenToken]) -> Looks:
    """Of heads, or of layers: probabilities [N, C], averaged over N."""
    mean = probabilities.mean(axis=0)
    return Looks(float(mean[0]), float(mean[-1]), strongest_looks(mean, tokens, STRONGEST), tuple(mean.tolist()))


def see_attention(
    queries: npt.NDArray[Any],
    keys: npt.NDArray[Any],
    values: npt.NDArray[Any],
    output: npt.NDArray[Any],
    tokens: Sequence[SeenToken],
    rule: ScoreRule,
) -> SeenAttention:
    """The last position's attention. queries, output: [H, Dh]; keys, values: [C, Hkv, Dh]; tokens: C at least."""
    probabilities = attention_probabilities(queries.astype(np.float64), keys.astype(np.float64), rule)
    difference = np.abs(weighted_values(probabilities, values.astype(np.float64)) - output).max()
    group = len(queries) // keys.shape[1]
    heads = tuple(
        LooksOfHead(head, head // group, float(row[0]), float(row[-1]), strongest_looks(row, tokens, STRONGEST_OF_HEAD))
        for head, row in enumerate(probabilities)
    )
    return SeenAttention(average_looks(probabilities, tokens), heads, float(difference))
