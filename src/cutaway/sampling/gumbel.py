"""Gumbel noise, and the draw: the token with the largest log-probability + noise (the Gumbel-max method, Gumbel 1954).

In: random words; distances of tokens from the likeliest. Out: noise; the id of the token drawn, with exactly the
probabilities of the filtered distribution. The noise of an id does not depend on the distribution, so that two
distributions that differ little draw the same token mostly.
"""

from typing import Any, Final

import numpy as np

from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.math import log
from cutaway.ops.kernel_cache import inner_jit, jit
from cutaway.ops.simd import (
    add,
    first_lane,
    lane_max,
    lanes_at_most,
    load,
    maximum,
    minimum,
    mul,
    shift_right,
    splat,
    splat_int,
    store,
    sub,
    to_float,
    zeros,
)
from cutaway.sampling.philox import BLOCK, noise_words
from cutaway.sampling.row import FARTHEST

_ONE, _HALF = np.float32(1.0), np.float32(0.5)
_UNIT: Final = np.float32(2.0**-31)
_LARGEST_BELOW_ONE: Final = np.float32(1.0 - 2.0**-24)

LARGEST_NOISE: Final = np.float32(22.2)
"""A little more than the largest noise there is, -ln(2⁻³²) = 22.18."""


@inner_jit
def gumbel(words: Any) -> Any:
    """-ln(-ln(1 - v)) of 16 words, where v is uniform on (0, 1): the upper 31 bits of a word and a half, times 2⁻³¹.

    Large noise decides a draw, and it comes from small v. Those are exact down to 2⁻³², the rest is rounded to float32
    (v at most 1 - 2⁻²⁴): the noise runs from -2.81 to 22.18 and the odds of a token are right to about 2⁻³².
    """
    v = mul(add(to_float(shift_right(words, splat_int(1))), splat(_HALF)), splat(_UNIT))
    v = minimum(v, splat(_LARGEST_BELOW_ONE))
    u = sub(splat(_ONE), v)
    # 1 - u differs from v by the rounding of u, which matters where u is near 1: there ln(u - ε) = ln u - ε.
    exponential = sub(sub(v, sub(splat(_ONE), u)), log(u))
    return sub(zeros(1), log(exponential))


@inner_jit
def block_noise(seed: int, choice: int, position: int, block: int) -> Any:
    """The noise of the 64 ids from 64 · block on, 16 a vector."""
    w0, w1, w2, w3 = noise_words(seed, choice, position, block)
    return gumbel(w0), gumbel(w1), gumbel(w2), gumbel(w3)


@jit
def write_noise(noise: Floats, seed: int, choice: int, position: int) -> None:
    """noise: [Vp] = the noise of every id; Vp is a multiple of 64."""
    for block in range(noise.shape[0] // BLOCK):
        first = noise.ctypes.data + 4 * BLOCK * block
        g0, g1, g2, g3 = block_noise(seed, choice, position, block)
        store(first, g0)
        store(first + 64, g1)
        store(first + 128, g2)
        store(first + 192, g3)


@jit
def noise_of(token: int, seed: int, choice: int, position: int, room: Floats) -> np.float32:
    """The noise of one id. room: [64] or more, of which the first 64 are overwritten."""
    g0, g1, g2, g3 = block_noise(seed, choice, position, token // BLOCK)
    first = room.ctypes.data
    store(first, g0)
    store(first + 64, g1)
    store(first + 128, g2)
    store(first + 192, g3)
    return room[token % BLOCK]


@jit
def draw(distances: Floats, seed: int, choice: int, position: int) -> int:
    """The id with the largest noise - distance; the lowest among equals.

    distances: [Vp] float32 ≥ 0, ∞ for a token that can't be drawn; Vp is a multiple of 64. A token that would lose even
    with the largest noise is passed over without computing its own.
    """
    base = distances.ctypes.data
    best, best_id = np.float32(-np.inf), 0
    for block in range(distances.shape[0] // BLOCK):
        first = base + 4 * BLOCK * block
        d0, d1, d2, d3 = load(first), load(first + 64), load(first + 128), load(first + 192)
        reach = splat(min(FARTHEST, LARGEST_NOISE - best))
        if lanes_at_most(minimum(minimum(d0, d1), minimum(d2, d3)), reach) == 0:
            continue
        g0, g1, g2, g3 = block_noise(seed, choice, position, block)
        s0, s1, s2, s3 = sub(g0, d0), sub(g1, d1), sub(g2, d2), sub(g3, d3)
        largest = lane_max(maximum(maximum(s0, s1), maximum(s2, s3)))
        if largest > best:
            best = largest
            winner = splat(largest)
            lanes = lanes_at_most(winner, s0) | lanes_at_most(winner, s1) << 16
            lanes |= lanes_at_most(winner, s2) << 32 | lanes_at_most(winner, s3) << 48
            best_id = BLOCK * block + first_lane(lanes)
    return best_id
