"""Activations to int8, in blocks of 32, for the integer dot products of ``matmul``.

In: x [T, K] float32. Out: the int8 rows with a float32 scale and the sums of each block.
"""

from typing import Final

import numpy as np

from cutaway.ops.cpu.arrays import Activation, Floats
from cutaway.ops.cpu.team import Team, barrier
from cutaway.ops.kernel_cache import jit
from cutaway.ops.simd import (
    absolute,
    add_int,
    bits_as_float,
    bits_as_int,
    lane_max,
    lane_max_int,
    lane_sum_int,
    load,
    maximum_int,
    mul,
    round_even,
    splat,
    splat_int,
    store_int8,
    to_int,
)

LEAST: Final = np.float32(2.0**-120)
"""Blocks whose greatest magnitude is smaller are taken as zeros: 127 / max|x| would overflow."""


@jit
def quantize_rows(team: Team, x: Floats, activation: Activation) -> None:
    """q = round(x · 127 / max|x|) for each block of 32, ties to even; a block of zeros, or of less than
    ``LEAST``, has scale 0. K is a multiple of 32.
    """
    blocks = x.shape[1] // 32
    chunks = (blocks + 15) // 16  # an item is 16 blocks of a row: enough to be worth sharing
    item = team.rank
    while item < x.shape[0] * chunks:
        t, chunk = item // chunks, item % chunks
        for block in range(16 * chunk, min(blocks, 16 * chunk + 16)):
            source = x.ctypes.data + t * x.strides[0] + 128 * block
            target = activation.q.ctypes.data + t * activation.q.strides[0] + 32 * block
            low, high = load(source), load(source + 64)
            # As integers the bits of magnitudes have the same order, and NaN is the greatest: it spoils the scale, and
            # with it every product, instead of passing for a small number.
            bits = maximum_int(bits_as_int(absolute(low)), bits_as_int(absolute(high)))
            largest = lane_max(bits_as_float(splat_int(lane_max_int(bits))))
            inverse = np.float32(0.0)
            if largest < LEAST:
                largest = np.float32(0.0)
            else:
                inverse = np.float32(127.0) / largest
            q_low = to_int(round_even(mul(low, splat(inverse))))
            q_high = to_int(round_even(mul(high, splat(inverse))))
            store_int8(target, q_low)
            store_int8(target + 16, q_high)
            total = lane_sum_int(add_int(q_low, q_high))
            scale = largest / np.float32(127.0)
            activation.scale[t, block] = scale
            activation.block_sum[t, block] = total
            activation.scaled_sum[t, block] = scale * np.float32(total)
        item += team.size
    barrier(team)
