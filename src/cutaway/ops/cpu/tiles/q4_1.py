"""Q4_1: blocks of 32 weights of 4 bits with a scale d and a minimum m: w = d · q + m, q in 0 … 15.

In the tile, a block is 4 groups of nibbles, then d, then m (320 bytes for 16 rows, as in the file):

    group g of row n:  low nibbles = weights 4g … 4g + 3,  high nibbles = weights 16 + 4g … 16 + 4g + 3

With x ≈ s · a (a int8, s the block's scale):  Σ w·x = d · (s · Σ q·a) + m · (s · Σ a).
"""

from typing import Final

import numpy as np

from cutaway.ops.cpu.tiles.layout import ROW_BLOCK, TileFormat
from cutaway.ops.kernel_cache import Kernel, kernel
from cutaway.ops.simd import (
    add,
    dot_u7,
    fma,
    high_nibbles,
    load,
    load_half,
    load_half_scalar,
    load_uint8,
    load_uint8_scalar,
    low_nibbles,
    mul,
    splat_rows,
    store_rows,
    store_scalar,
    to_float,
    zeros,
    zeros_int,
)

SCALE, MINIMUM, BYTES = 256, 288, 320  # offsets in a block of the tile, and its size


def _multiply(M: int) -> Kernel:
    """The kernel for M rows of activations; see ``layout.WEIGHT`` for its arguments."""

    def q4_1_multiply(
        tile: int,
        num_blocks: int,
        bias: int,
        q: int,
        q_stride: int,
        scale: int,
        block_sum: int,
        scaled_sum: int,
        block_stride: int,
        out: int,
        out_stride: int,
    ) -> None:
        total = add(zeros(M), load(bias))
        for _ in range(num_blocks):
            products = zeros_int(M)
            for group in range(4):
                nibbles = load_uint8(tile + 64 * group)
                products = dot_u7(products, low_nibbles(nibbles), q + 4 * group, q_stride)
                products = dot_u7(products, high_nibbles(nibbles), q + 16 + 4 * group, q_stride)
            total = fma(load_half(tile + MINIMUM), splat_rows(scaled_sum, block_stride, M), total)
            scaled = mul(to_float(products), splat_rows(scale, block_stride, M))
            total = fma(scaled, load_half(tile + SCALE), total)
            tile += BYTES
            q += 32
            scale += 4
            scaled_sum += 4
        store_rows(out, out_stride, total)

    q4_1_multiply.__qualname__ = f"q4_1_multiply_{M}"
    return kernel(q4_1_multiply)


@kernel
def q4_1_decode_row(tile: int, lane: int, num_blocks: int, out: int) -> None:
    """out[k] = d · q + m, the product rounded before the sum: the file format's definition."""
    target = out
    for _ in range(num_blocks):
        d, m = load_half_scalar(tile + SCALE + 2 * lane), load_half_scalar(tile + MINIMUM + 2 * lane)
        for k in range(32):
            byte = load_uint8_scalar(tile + 64 * (k % 16 // 4) + 4 * lane + k % 4)
            nibble = byte >> 4 if k >= 16 else byte & 15
            store_scalar(target, np.float32(nibble) * d + m)
            target += 4
        tile += BYTES


Q4_1: Final = TileFormat(
    name="Q4_1",
    scales=2,
    payload_bytes=16,
    flip=0,
    multiply_one=_multiply(1),
    multiply_many=_multiply(ROW_BLOCK),
    decode_row=q4_1_decode_row,
)
