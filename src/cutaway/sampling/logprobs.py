"""Log-probabilities of a row: the model's own, before temperature and every other step.

In: logits [V] float32. Out: the logarithm of the row's sum of exponentials, from which the log-probability of any
token follows, its rank, and the likeliest tokens with theirs.
"""

import numpy as np

from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.math import exp, log
from cutaway.ops.kernel_cache import jit
from cutaway.ops.simd import (
    add,
    bits_as_int,
    first_lane,
    lane_max,
    lane_sum,
    lanes_at_most,
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
        part = zeros(1)
        for i in range(start, min(start + SUM_BLOCK, V), LANES):
            distance = distance_at(logits, tail, peak, i)
            if lanes_at_most(bits_as_int(distance), splat_int(INFINITY_BITS - 1)):
                part = add(part, exp(sub(zeros(1), distance)))
        total = add(total, part)
    return lane_max(log(splat(lane_sum(total))))


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
def rank(logits: Floats, logit: np.float32) -> int:
    """1 + the number of logits that are greater: 1 for the likeliest token and for all its equals."""
    greater = 0
    for i in range(logits.shape[0]):
        greater += logits[i] > logit
    return 1 + greater
