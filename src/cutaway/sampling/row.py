"""A row of logits, read: its largest value, the id that has it, and the distances of all ids from it.

In: logits [V] float32, of any V. Out: ``largest`` and ``argmax``; ``distances``, the working array of the sampling
steps. Nothing beyond the row's end is read: the last, partial vector is taken from a padded copy.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from cutaway.ops.arguments import kept
from cutaway.ops.cpu.arrays import Doubles, Floats, Ints
from cutaway.ops.kernel_cache import inner_jit, jit
from cutaway.ops.simd import (
    absolute,
    and_uint,
    bits_as_int,
    div,
    first_lane,
    lane_max,
    lane_max_int,
    lanes_at_most,
    load,
    maximum,
    maximum_int,
    minimum,
    splat,
    splat_int,
    store,
    sub,
    zeros_int,
)
from cutaway.ops.simd.registers import LANES
from cutaway.sampling.params import MOST_LOGPROBS
from cutaway.sampling.philox import BLOCK

MAGNITUDE: Final = 0x7FFFFFFF
"""All bits of a float32 but its sign."""
INFINITY_BITS: Final = 0x7F800000
"""The bits of the float32 ∞, above those of every finite number that is not negative."""
BUCKETS: Final = 2048
FARTHEST: Final = np.finfo(np.float32).max


@kept
class SamplerScratch(NamedTuple):
    """Room for sampling one row of V logits at a time. Vp is V rounded up to whole blocks of 64 ids."""

    tail: Floats  # [16] the last V % 16 logits, then -∞
    distances: Floats  # [Vp] the working array
    weights: Floats  # [Vp]
    buckets: Doubles  # [2048] of the search for a cut
    best_ids: Ints  # [20] of the likeliest tokens
    best_logprobs: Floats  # [20]
    adjusted: Floats  # [Vp] logits after bias, masks and penalties
    counts: Ints  # [Vp] of tokens in the sequence

    @classmethod
    def allocate(cls, V: int) -> "SamplerScratch":
        """Zeroed arrays for a vocabulary of V ids: 16 · Vp bytes and 16 KiB."""
        padded = -(-V // BLOCK) * BLOCK
        return cls(
            tail=np.zeros(LANES, np.float32),
            distances=np.zeros(padded, np.float32),
            weights=np.zeros(padded, np.float32),
            buckets=np.zeros(BUCKETS, np.float64),
            best_ids=np.zeros(MOST_LOGPROBS, np.int32),
            best_logprobs=np.zeros(MOST_LOGPROBS, np.float32),
            adjusted=np.zeros(padded, np.float32),
            counts=np.zeros(padded, np.int32),
        )

    def with_own_results(self) -> "SamplerScratch":
        """The same room for another row's sampling, which leaves what was found for this row."""
        return self._replace(best_ids=self.best_ids.copy(), best_logprobs=self.best_logprobs.copy())


@jit
def copy_tail(logits: Floats, tail: Floats) -> None:
    """tail: [16] = the last V % 16 logits, then -∞."""
    V = logits.shape[0]
    start = V // LANES * LANES
    for lane in range(LANES):
        tail[lane] = logits[start + lane] if start + lane < V else np.float32(-np.inf)


@inner_jit
def _vector_at(logits: Floats, tail: Floats, i: int) -> int:
    """The address of the 16 logits from id i on, a multiple of 16."""
    return logits.ctypes.data + 4 * i if i + LANES <= logits.shape[0] else tail.ctypes.data


@jit
def largest(logits: Floats, tail: Floats) -> np.float32:
    """The largest logit, NaN where any is NaN. +∞ counts as the largest finite float32."""
    V, base = logits.shape[0], logits.ctypes.data
    lowest, no_sign = splat(np.float32(-np.inf)), splat_int(MAGNITUDE)
    # Four maxima side by side: one would wait for itself. The bits of a NaN without its sign lie above those of ∞.
    m0, m1, m2, m3, bits = lowest, lowest, lowest, lowest, zeros_int(1)
    for i in range(0, V // BLOCK * BLOCK, BLOCK):
        first = base + 4 * i
        x0, x1, x2, x3 = load(first), load(first + 64), load(first + 128), load(first + 192)
        m0, m1, m2, m3 = maximum(x0, m0), maximum(x1, m1), maximum(x2, m2), maximum(x3, m3)
        b0, b1 = and_uint(bits_as_int(x0), no_sign), and_uint(bits_as_int(x1), no_sign)
        b2, b3 = and_uint(bits_as_int(x2), no_sign), and_uint(bits_as_int(x3), no_sign)
        bits = maximum_int(maximum_int(maximum_int(b0, b1), maximum_int(b2, b3)), bits)
    for i in range(V // BLOCK * BLOCK, V, LANES):
        x0 = load(_vector_at(logits, tail, i))
        m0, bits = maximum(x0, m0), maximum_int(and_uint(bits_as_int(x0), no_sign), bits)
    if lane_max_int(bits) > INFINITY_BITS:
        return np.float32(np.nan)
    return min(lane_max(maximum(maximum(m0, m1), maximum(m2, m3))), FARTHEST)


@jit
def argmax(logits: Floats, tail: Floats, peak: np.float32) -> int:
    """The lowest id whose logit is ``peak``, the row's largest."""
    V, base = logits.shape[0], logits.ctypes.data
    start = 0
    while start + BLOCK <= V:  # whole blocks without it are passed over
        first = base + 4 * start
        most = maximum(maximum(load(first), load(first + 64)), maximum(load(first + 128), load(first + 192)))
        if lanes_at_most(splat(peak), most):
            break
        start += BLOCK
    for i in range(start, V, LANES):
        lanes = lanes_at_most(splat(peak), load(_vector_at(logits, tail, i)))
        if lanes:
            return i + first_lane(lanes)
    return -1


@inner_jit
def distance_at(logits: Floats, tail: Floats, peak: np.float32, i: int) -> Any:
    """peak - logits of the 16 ids from i on, a multiple of 16: ≥ 0, and ∞ for a logit of -∞."""
    x = minimum(load(_vector_at(logits, tail, i)), splat(FARTHEST))
    # The absolute value turns the -0 that 0 - 0 could give under another sign of zero into 0.
    return absolute(sub(splat(peak), x))


@jit
def temperature(logits: Floats, tail: Floats, peak: np.float32, t: np.float32, distances: Floats) -> None:
    """distances[i] = (peak - logits[i]) / t, for t > 0: the probability of i is proportional to e^-distance.

    A distance is ≥ 0, and 0 for the likeliest token whatever the temperature. ∞ stands for a token that can't be drawn:
    a logit of -∞, and the ids from V on that fill the last block.
    """
    target = distances.ctypes.data
    end = (logits.shape[0] + LANES - 1) // LANES * LANES
    for i in range(0, end, LANES):
        store(target + 4 * i, div(distance_at(logits, tail, peak, i), splat(t)))
    for i in range(end, distances.shape[0]):
        distances[i] = np.float32(np.inf)
