"""Activations to int8, in blocks of 32, for the integer dot products of ``matmul``.

In: x [T, K] float32. Out: an ``Activation``: int8 rows, with a float32 scale and the sums of each block.
"""

from typing import Final

import numpy as np

from cutaway.ops.cpu.arrays import GROUP_STRIDE, ROW_GROUP, SCALE_STRIDE, Activation, Floats
from cutaway.ops.cpu.team import Team, barrier, share
from cutaway.ops.kernel_cache import inlined, jit
from cutaway.ops.simd import (
    absolute,
    add_int,
    bits_as_int,
    lane_max_int,
    lane_sum_int,
    load,
    maximum_int,
    mul,
    round_even,
    splat,
    store_int8,
    store_scalar,
    store_uint32_scalar,
    to_int,
)

CHUNK: Final = 16  # blocks of a piece of work: enough to be worth sharing
LEAST: Final = np.float32(2.0**-120)
"""Numbers whose greatest magnitude is smaller are taken as zeros: 127 / max|x| would overflow."""


@inlined
def int8_scales(bits: int) -> tuple[np.float32, np.float32]:
    """(127 / max|x|, max|x| / 127): what takes numbers to -127 … 127, and back. bits: those of max|x|, as an integer.

    As integers the bits of magnitudes have the same order, and NaN is the greatest: it spoils the scale, and with it
    every product, instead of passing for a small number.
    """
    largest = np.int32(bits).view(np.float32)
    inverse = np.float32(0.0)
    if largest < LEAST:
        largest = np.float32(0.0)
    else:
        inverse = np.float32(127.0) / largest
    return inverse, largest / np.float32(127.0)


@inlined
def _quantize_block(source: int, q: int, scale: int, block_sum: int, scaled_sum: int) -> None:
    """One block of 32 float32 at ``source``. The others are addresses of what becomes of it: 32 int8, a float32 scale,
    the int32 sum of the int8, and the float32 product of the two.
    """
    low, high = load(source), load(source + 64)
    bits = maximum_int(bits_as_int(absolute(low)), bits_as_int(absolute(high)))
    inverse, step = int8_scales(lane_max_int(bits))
    q_low = to_int(round_even(mul(low, splat(inverse))))
    q_high = to_int(round_even(mul(high, splat(inverse))))
    store_int8(q, q_low)
    store_int8(q + 16, q_high)
    total = lane_sum_int(add_int(q_low, q_high))
    store_scalar(scale, step)
    store_uint32_scalar(block_sum, total)
    store_scalar(scaled_sum, step * np.float32(total))


@jit
def quantize_rows(team: Team, x: Floats, activation: Activation) -> None:
    """q = round(x · 127 / max|x|) and scale = max|x| / 127 for each block of 32 numbers of a row, ties to even.

    x: [T, K] float32, K a multiple of 32; activation: at least T rows of K. A block whose magnitudes are all below
    ``LEAST`` becomes zeros with scale 0; one with a NaN or an infinity gets a scale that spoils its products.
    """
    T, blocks = x.shape[0], x.shape[1] // 32
    chunks = (blocks + CHUNK - 1) // CHUNK
    groups = (T + ROW_GROUP - 1) // ROW_GROUP
    # A piece is one chunk of a group of rows, whose scales lie on the same cache lines.
    for piece in share(team, groups * chunks):
        group, chunk = piece // chunks, piece % chunks
        for t in range(ROW_GROUP * group, min(T, ROW_GROUP * group + ROW_GROUP)):
            source = x.ctypes.data + t * x.strides[0]
            q = activation.q.ctypes.data + t * activation.q.strides[0]
            scales = group * activation.scale.strides[0] + SCALE_STRIDE * (t % ROW_GROUP)
            for block in range(CHUNK * chunk, min(blocks, CHUNK * chunk + CHUNK)):
                place = scales + GROUP_STRIDE * block
                _quantize_block(
                    source + 128 * block,
                    q + 32 * block,
                    activation.scale.ctypes.data + place,
                    activation.block_sum.ctypes.data + place,
                    activation.scaled_sum.ctypes.data + place,
                )
    barrier(team)
