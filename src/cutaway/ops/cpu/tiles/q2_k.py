"""Q2_K: blocks of 256 weights of 2 bits, 16 by 16 with a scale and a minimum: w = d · scale · q - dmin · minimum, q in
0 … 3.

In the tile, a block is 8 parts of 32 weights, then d, then dmin (1,344 bytes for 16 rows, as in the file). A part is 2
groups of pairs of bits (``bit_pairs``), one for each of its halves, then for each half a byte a row: the scale in its
low, the minimum in its high nibble.

With x ≈ s · a (a int8, s the block's scale):  Σ w·x = (d · scale) · (s · Σ q·a) - (dmin · minimum) · (s · Σ a) for each
half. The products in parentheses of d and dmin are exact in float32: 11 times 4 bits.
"""

from typing import Any, Final

import numpy as np

from cutaway.formats.blocks import BY_NAME
from cutaway.ops.cpu.arrays import GROUP_STRIDE, SCALE_STRIDE
from cutaway.ops.cpu.tiles.bit_pairs import bit_pair_of, dot_constant, low_bit_pairs, next_bit_pairs, pack_bit_pairs
from cutaway.ops.cpu.tiles.layout import (
    ROW_BLOCK,
    TileFormat,
    fetch_ahead,
    move_half,
)
from cutaway.ops.cpu.tiles.parts import PARTS
from cutaway.ops.kernel_cache import Kernel, inlined, kernel
from cutaway.ops.simd import (
    add,
    and_uint,
    dot_u7,
    fma,
    load,
    load_half,
    load_half_scalar,
    load_int8,
    load_uint8,
    load_uint8_scalar,
    mul,
    shift_right,
    splat,
    splat_int,
    splat_rows,
    splat_rows_int,
    store_rows,
    store_scalar,
    store_uint8_scalar,
    sub_int,
    to_float,
    zeros,
    zeros_int,
)

SCALES, PART_BYTES = 128, 160  # offset in a part, and its size
D = PARTS * PART_BYTES  # offsets in a block of the tile, and its size
DMIN = D + 32
BYTES = DMIN + 32


@inlined
def _dot_half(products: Any, pairs: int, q: int, q_stride: int) -> Any:
    """products[r, n] + Σ_k w[n, k] · q[r, k] over 16 weights of 2 bits."""
    weights = load_uint8(pairs)
    for group in range(4):
        products = dot_u7(products, low_bit_pairs(weights), q + 4 * group, q_stride)
        weights = next_bit_pairs(weights)
    return products


def _multiply(M: int) -> Kernel:
    """The kernel for M rows of activations; see ``layout.WEIGHT`` for its arguments."""

    def q2_k_multiply(
        tile: int,
        num_blocks: int,
        bias: int,
        q: int,
        q_stride: int,
        scale: int,
        block_sum: int,
        scaled_sum: int,
        out: int,
        out_stride: int,
    ) -> None:
        total = add(zeros(M), load(bias))
        for _ in range(num_blocks // PARTS):
            d, negative_dmin = load_half(tile + D), mul(load_half(tile + DMIN), splat(np.float32(-1.0)))
            for _ in range(PARTS):
                fetch_ahead(tile, PART_BYTES)
                factor = splat_rows(scale, SCALE_STRIDE, M)
                half_sum = dot_constant(zeros_int(M), 1, q, q_stride)
                for half in range(2):
                    both = load_int8(tile + SCALES + 16 * half)
                    minimum = to_float(and_uint(shift_right(both, splat_int(4)), splat_int(15)))
                    total = fma(mul(negative_dmin, minimum), mul(to_float(half_sum), factor), total)
                    products = _dot_half(zeros_int(M), tile + 64 * half, q + 16 * half, q_stride)
                    scaled = mul(to_float(products), factor)
                    total = fma(scaled, mul(d, to_float(and_uint(both, splat_int(15)))), total)
                    half_sum = sub_int(splat_rows_int(block_sum, SCALE_STRIDE, M), half_sum)
                tile += PART_BYTES
                q += 32
                scale += GROUP_STRIDE
                block_sum += GROUP_STRIDE
            tile += BYTES - D
        store_rows(out, out_stride, total)

    q2_k_multiply.__qualname__ = f"q2_k_multiply_{M}"
    return kernel(q2_k_multiply)


@kernel
def q2_k_pack_block(source: int, lane: int, block: int) -> None:
    """A row's block of the file into its lane; ``formats.blocks_of_256`` defines where the file has which bits."""
    move_half(source + 80, block + D + 2 * lane)
    move_half(source + 82, block + DMIN + 2 * lane)
    for part in range(PARTS):
        target = block + part * PART_BYTES
        for half in range(2):
            pairs = source + 16 + 32 * (part // 4) + 16 * half
            pack_bit_pairs(pairs, 2 * (part % 4), target + 64 * half + 4 * lane)
            store_uint8_scalar(target + SCALES + 16 * half + lane, load_uint8_scalar(source + 2 * part + half))


@kernel
def q2_k_decode_row(tile: int, lane: int, num_blocks: int, out: int) -> None:
    """out[k] = d · scale · q - dmin · minimum, the products exact: the file format's definition."""
    for _ in range(num_blocks // PARTS):
        d, dmin = load_half_scalar(tile + D + 2 * lane), load_half_scalar(tile + DMIN + 2 * lane)
        for _ in range(PARTS):
            for k in range(32):
                half = k // 16
                both = load_uint8_scalar(tile + SCALES + 16 * half + lane)
                q = bit_pair_of(load_uint8_scalar(tile + 64 * half + 4 * lane + k % 4), k)
                store_scalar(out, d * np.float32(both & 15) * np.float32(q) - dmin * np.float32(both >> 4))
                out += 4
            tile += PART_BYTES
        tile += BYTES - D


Q2_K: Final = TileFormat(
    block_type=BY_NAME["Q2_K"],
    block_bytes=BYTES,
    pack_block=q2_k_pack_block,
    multiply_one=_multiply(1),
    multiply_many=_multiply(ROW_BLOCK),
    decode_row=q2_k_decode_row,
)
