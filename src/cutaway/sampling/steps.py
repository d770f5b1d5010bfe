"""The steps that narrow a distribution: top-k, top-p and min-p.

In and out: the working array, distances [Vp] float32 ≥ 0, where the probability of an id is proportional to e^-distance
(``row.temperature`` writes it). A step drops a token by setting its distance to ∞, which renormalises what is left.
Each keeps a first part of one order: the likelier first, the lower id first among equals.

Nothing is sorted. The bits of a float32 ≥ 0, read as an integer, ascend with it; ``cut`` finds the last token to be
kept by three passes over ever finer buckets of these integers.
"""

from typing import Final

import numpy as np

from cutaway.ops.cpu.arrays import Doubles, Floats
from cutaway.ops.cpu.math import exp, log
from cutaway.ops.kernel_cache import inner_jit, jit
from cutaway.ops.simd import (
    add,
    bits_as_int,
    first_lane,
    lane_sum,
    lanes_at_most,
    load,
    load_int,
    load_uint32_scalar,
    maximum,
    replace_above,
    splat,
    splat_int,
    store,
    store_int,
    sub,
    zeros,
)
from cutaway.ops.simd.registers import LANES
from cutaway.sampling.row import INFINITY_BITS

SUM_BLOCK: Final = 1024
SMALLEST: Final = 2.0**-1022
SMALLEST_NORMAL: Final = np.float32(2.0**-126)


@inner_jit
def exponentials(distances: Floats, weights: Floats) -> np.float32:
    """weights[i] = e^-distances[i] for the tokens that are left; returns their sum.

    The sum is float32, in this order: 16 lanes (id mod 16), ascending ids within each block of 1,024 ids, then the
    blocks in order, then the lanes in the fixed tree. It is at least 1, the weight of the likeliest token; what is
    farther than 87 counts as e⁻⁸⁷, which no sum can see.
    """
    source, target = distances.ctypes.data, weights.ctypes.data
    farthest = splat_int(INFINITY_BITS - 1)
    total = zeros(1)
    for start in range(0, distances.shape[0], SUM_BLOCK):
        part = zeros(1)
        for i in range(start, min(start + SUM_BLOCK, distances.shape[0]), LANES):
            if lanes_at_most(load_int(source + 4 * i), farthest):
                weight = exp(sub(zeros(1), load(source + 4 * i)))
                store(target + 4 * i, weight)
                part = add(part, weight)
        total = add(total, part)
    return lane_sum(total)


@inner_jit
def cut(distances: Floats, weights: Floats, amount: float, buckets: Doubles) -> None:
    """Keep the first tokens of the order, up to the one with which their weights reach ``amount``; drop the others.

    weights: [Vp] float32, summed in float64: by bucket in ascending order, ascending ids within a bucket. A token is
    kept if the weights before it are below ``amount``.
    """
    base = distances.ctypes.data
    prefix, before = 0, 0.0
    width = 11
    for shift in (20, 10, 0):
        buckets[: 1 << width] = 0.0
        low, high = splat_int(prefix), splat_int(min(prefix + (1 << (shift + width)), INFINITY_BITS) - 1)
        for i in range(0, distances.shape[0], LANES):
            key = load_int(base + 4 * i)
            lanes = lanes_at_most(low, key) & lanes_at_most(key, high)
            while lanes:
                token = i + first_lane(lanes)
                lanes &= lanes - 1
                bucket = (load_uint32_scalar(base + 4 * token) - prefix) >> shift
                buckets[bucket] += np.float64(weights[token])
        bucket = 0
        while bucket < (1 << width) - 1 and before + buckets[bucket] < amount:
            before += buckets[bucket]
            bucket += 1
        prefix += bucket << shift
        width = 10

    last = splat_int(prefix)
    for i in range(0, distances.shape[0], LANES):
        key = load_int(base + 4 * i)
        equal = lanes_at_most(last, key) & lanes_at_most(key, last)
        store_int(base + 4 * i, replace_above(key, last, splat_int(INFINITY_BITS)))
        while equal:
            token = i + first_lane(equal)
            equal &= equal - 1
            if before < amount:
                before += np.float64(weights[token])
            else:
                distances[token] = np.float32(np.inf)


@jit
def top_k(distances: Floats, k: int, weights: Floats, buckets: Doubles) -> None:
    """Keep the k likeliest tokens (all, where there are no more); k ≤ 0 keeps all."""
    if 0 < k < distances.shape[0]:
        for i in range(weights.shape[0]):
            weights[i] = np.float32(1.0)
        cut(distances, weights, np.float64(k), buckets)


@jit
def top_p(distances: Floats, p: float, weights: Floats, buckets: Doubles) -> None:
    """Keep the fewest likeliest tokens whose probabilities sum to at least p, and always one; p ≥ 1 keeps all.

    Probabilities are those among the tokens that are left. Source: Holtzman et al. 2020, "nucleus sampling".
    """
    if p < 1.0:
        total = np.float64(exponentials(distances, weights))
        cut(distances, weights, max(p * total, SMALLEST), buckets)


@jit
def min_p(distances: Floats, p: float) -> None:
    """Keep the tokens at least p times as likely as the likeliest, and always that one; p below 2⁻¹²⁶ keeps all.

    e^-distance ≥ p is distance ≤ -ln p, so no probability is computed. Source: Nguyen et al. 2024.
    """
    threshold = np.float32(p)
    if threshold < SMALLEST_NORMAL:
        return
    # In this order, maximum gives +0 and never -0, whose bits are not those of the smallest distance.
    limit = bits_as_int(maximum(sub(zeros(1), log(splat(threshold))), zeros(1)))
    base = distances.ctypes.data
    for i in range(0, distances.shape[0], LANES):
        store_int(base + 4 * i, replace_above(load_int(base + 4 * i), limit, splat_int(INFINITY_BITS)))
