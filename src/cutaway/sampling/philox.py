"""Philox4x32-10, a counter-based random number generator (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
easy as 1, 2, 3", SC 2011).

In: a key of two and a counter of four 32-bit words. Out: four 32-bit words. There is no state: the same key and counter
give the same words, wherever and whenever they are computed. Here 16 counters are computed side by side.
"""

from typing import Any, Final

from cutaway.ops.kernel_cache import inner_jit
from cutaway.ops.simd import add_int, lane_index, mul_high_uint, mul_int, splat_int, xor_int

ROUNDS: Final = 10
MULTIPLIER_0, MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
WEYL_0, WEYL_1 = 0x9E3779B9, 0xBB67AE85  # added to the key after each round: the golden ratio and √3 - 1

NOISE_DOMAIN: Final = 0x746F6B6E
"""The last counter word of the noise of tokens ("tokn"), which keeps it apart from noise for other purposes."""

BLOCK: Final = 64
"""Consecutive ids whose noise is computed together: 16 counters of 4 words."""


@inner_jit
def philox(c0: Any, c1: Any, c2: Any, c3: Any, key_0: int, key_1: int) -> Any:
    """Four words for each of 16 counters. c0 … c3: int32 lanes; of the keys the low 32 bits count."""
    k0, k1 = splat_int(key_0), splat_int(key_1)
    for _ in range(ROUNDS):
        high_0, low_0 = mul_high_uint(c0, splat_int(MULTIPLIER_0)), mul_int(c0, splat_int(MULTIPLIER_0))
        high_1, low_1 = mul_high_uint(c2, splat_int(MULTIPLIER_1)), mul_int(c2, splat_int(MULTIPLIER_1))
        c0, c1, c2, c3 = xor_int(xor_int(high_1, c1), k0), low_1, xor_int(xor_int(high_0, c3), k1), low_0
        k0, k1 = add_int(k0, splat_int(WEYL_0)), add_int(k1, splat_int(WEYL_1))
    return c0, c1, c2, c3


@inner_jit
def noise_words(seed: int, choice: int, position: int, block: int) -> Any:
    """The random words of the 64 ids from 64 · block on, a function of these four integers alone.

    Id 64 · block + 16 · w + lane has word w of the counter (16 · block + lane, position, choice, domain) under the key
    seed (an int64's low and high 32 bits). position: of the token being chosen, in its sequence.
    """
    first = add_int(splat_int(16 * block), lane_index())
    return philox(first, splat_int(position), splat_int(choice), splat_int(NOISE_DOMAIN), seed, seed >> 32)
