"""Log-probabilities of a row: the model's own, before temperature and every other step.

In: logits [V] float32. Out: the logarithm of the row's sum of exponentials, from which the log-probability of any
token follows, its rank, and the likeliest tokens with theirs.
"""

from typing import Any

import numpy as np

from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.math import add_exp, log
from cutaway.ops.kernel_cache import inner_jit, jit
from cutaway.ops.simd import (
    add,
    count_lanes,
    first_lane,
    lane_max,
    lane_sum,
    lanes_at_most,
    load,
    load_int,
    splat,
    splat_int,
    sub,
    zeros,
)
from cutaway.ops.simd.registers import LANES
from cutaway.sampling.row import FARTHEST, INFINITY_BITS, SamplerScratch, distance_at, temperature
from cutaway.sampling.steps import SUM_BLOCK, top_k


@jit
def log_total(logits: Floats, tail: Floats, peak: np.float32) -> np.float32:
    """ln Σ e^(logits[i] - peak), at least 0. peak: the largest logit; tail: [16] of ``row.copy_tail``.

    The order of the sum is that of ``steps.exponentials``, but nothing is written.
    """
    V = logits.shape[0]
    total = zeros(1)
    for start in range(0, V, SUM_BLOCK):
        if start + SUM_BLOCK <= V and peak < FARTHEST:
            total = add(total, _whole_part(logits, peak, start))
        else:
            total = add(total, _part(logits, tail, peak, start))
    return lane_max(log(splat(lane_sum(total))))


@inner_jit
def _part(logits: Floats, tail: Floats, peak: np.float32, start: int) -> Any:
    """The lanes' sums over the block of ids from ``start`` on. -∞ counts as e⁻⁸⁷, which no sum can see: one of the
    row's lanes has the peak's 1.
    """
    part = zeros(1)
    for i in range(start, min(start + SUM_BLOCK, logits.shape[0]), LANES):
        part = add_exp(part, sub(zeros(1), distance_at(logits, tail, peak, i)))
    return part


@inner_jit
def _whole_part(logits: Floats, peak: np.float32, start: int) -> Any:
    """The same in half the time, for a whole block of a row without +∞.

    The difference to the peak is the distance with another sign, or 0 with either.
    """
    base = logits.ctypes.data
    part = zeros(1)
    for i in range(start, start + SUM_BLOCK, LANES):
        part = add_exp(part, sub(load(base + 4 * i), splat(peak)))
    return part


@jit
def logprob(logit: np.float32, peak: np.float32, total: np.float32) -> np.float32:
    """ln of the probability of a token with this logit, ≤ 0; total: from ``log_total``."""
    return np.float32(0.0) - ((peak - min(logit, FARTHEST)) + total)


@jit
def list_best(count: int, logits: Floats, peak: np.float32, total: np.float32, scratch: SamplerScratch) -> int:
    """Write the ``count`` likeliest ids and their log-probabilities to ``scratch.best_…``; returns how many there are.

    The likelier first, the lower id first among equals. Tokens whose logit is -∞ are not listed. ``scratch.distances``
    are used up.
    """
    temperature(logits, scratch.tail, peak, np.float32(1.0), scratch.distances)
    top_k(scratch.distances, count, scratch.weights, scratch.buckets)
    base = scratch.distances.ctypes.data
    ids, values = scratch.best_ids, scratch.best_logprobs
    listed = 0
    for i in range(0, scratch.distances.shape[0], LANES):
        lanes = lanes_at_most(load_int(base + 4 * i), splat_int(INFINITY_BITS - 1))
        while lanes:
            token = i + first_lane(lanes)
            lanes &= lanes - 1
            value = np.float32(0.0) - (scratch.distances[token] + total)
            place = listed
            while place > 0 and values[place - 1] < value:
                ids[place], values[place] = ids[place - 1], values[place - 1]
                place -= 1
            ids[place], values[place] = token, value
            listed += 1
    return listed


@jit
def rank(logits: Floats, logit: np.float32, peak: np.float32) -> int:
    """1 + the number of logits that are greater: 1 for the likeliest and all its equals. peak: the ``largest``."""
    if logit == peak and peak < FARTHEST:  # which also stands for +∞
        return 1
    V, base, own = logits.shape[0], logits.ctypes.data, splat(logit)
    whole = V // LANES * LANES
    greater = whole
    for i in range(0, whole, LANES):
        greater -= count_lanes(lanes_at_most(load(base + 4 * i), own))
    for i in range(whole, V):
        greater += logits[i] > logit
    return 1 + greater
