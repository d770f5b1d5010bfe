"""Q3_K: blocks of 256 weights of 3 bits, 16 by 16 with a scale: w = d · (scale - 32) · (q - 4), q in 0 … 7.

In the tile, a block is 8 parts of 32 weights, then d (1,824 bytes for 16 rows; in the file 1,760, its scales packed in
6 bits). A part is 2 groups of pairs of bits (``bit_pairs``), one for each of its halves; 1 group of third bits, laid
out as ``nibbles`` lays out fifth ones; and for both halves scale - 32 as a signed byte a row.

With x ≈ s · a (a int8, s the block's scale):  Σ w·x = (d · (scale - 32)) · s · (Σ q·a - Σ 4·a) for each half. The
product of d and the scale is exact in float32: 11 times 6 bits.
"""

from typing import Any, Final

import numpy as np

from cutaway.formats.blocks import BY_NAME
from cutaway.ops.cpu.arrays import GROUP_STRIDE, SCALE_STRIDE
from cutaway.ops.cpu.tiles.bit_pairs import bit_pair_of, dot_constant, low_bit_pairs, next_bit_pairs, pack_bit_pairs
from cutaway.ops.cpu.tiles.layout import ROW_BLOCK, TileFormat, fetch_ahead, move_half
from cutaway.ops.cpu.tiles.nibbles import pack_fifth_bits_of_bytes
from cutaway.ops.cpu.tiles.panel import MULTIPLY_HALVES, PANEL_HALF_SCALES, step_bytes
from cutaway.ops.cpu.tiles.parts import PARTS
from cutaway.ops.kernel_cache import Kernel, inlined, kernel
from cutaway.ops.simd import (
    add,
    and_bytes,
    dot_u7,
    fma,
    load,
    load_half,
    load_half_scalar,
    load_int8,
    load_uint8,
    load_uint8_scalar,
    mul,
    mul_int,
    or_bytes,
    shift_left_bytes,
    shift_right_bytes,
    splat_int,
    splat_rows,
    splat_rows_int,
    splat_uint8,
    store,
    store_rows,
    store_scalar,
    store_uint8,
    store_uint8_scalar,
    sub_bytes,
    sub_int,
    to_float,
    zeros,
    zeros_int,
)

THIRD, SCALES, PART_BYTES = 128, 192, 224  # offsets in a part, and its size
D = PARTS * PART_BYTES  # offset in a block of the tile, and its size
BYTES = D + 32
STEP: Final = step_bytes(16, False)  # of a panel


@inlined
def _with_third_bits(low: Any, third: Any) -> Any:
    """Bytes of 3 bits: the lowest pair of bits of each byte of ``low`` below the lowest bit of ``third``."""
    return or_bytes(low_bit_pairs(low), and_bytes(shift_left_bytes(third, splat_uint8(2)), splat_uint8(4)))


@inlined
def _dot_half(products: Any, pairs: int, third: Any, q: int, q_stride: int) -> Any:
    """products[r, n] + Σ_k w[n, k] · q[r, k] over 16 weights of 3 bits; ``third``: theirs are the lowest 4 bits."""
    low = load_uint8(pairs)
    for group in range(4):
        products = dot_u7(products, _with_third_bits(low, third), q + 4 * group, q_stride)
        low, third = next_bit_pairs(low), shift_right_bytes(third, splat_uint8(1))
    return products


def _multiply(M: int) -> Kernel:
    """The kernel for M rows of activations; see ``layout.WEIGHT`` for its arguments."""

    def q3_k_multiply(
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
            d = load_half(tile + D)
            for _ in range(PARTS):
                fetch_ahead(tile, PART_BYTES)
                factor = splat_rows(scale, SCALE_STRIDE, M)
                third = load_uint8(tile + THIRD)
                offset = dot_constant(zeros_int(M), 4, q, q_stride)  # Σ 4·a over the first half
                for half in range(2):
                    products = _dot_half(zeros_int(M), tile + 64 * half, third, q + 16 * half, q_stride)
                    scaled = mul(to_float(sub_int(products, offset)), factor)
                    total = fma(scaled, mul(d, to_float(load_int8(tile + SCALES + 16 * half))), total)
                    offset = sub_int(mul_int(splat_rows_int(block_sum, SCALE_STRIDE, M), splat_int(4)), offset)
                    third = shift_right_bytes(third, splat_uint8(4))
                tile += PART_BYTES
                q += 32
                scale += GROUP_STRIDE
                block_sum += GROUP_STRIDE
            tile += BYTES - D
        store_rows(out, out_stride, total)

    q3_k_multiply.__qualname__ = f"q3_k_multiply_{M}"
    return kernel(q3_k_multiply)


@kernel
def q3_k_pack_block(source: int, lane: int, block: int) -> None:
    """A row's block of the file into its lane; ``formats.blocks_of_256`` defines where the file has which bits."""
    move_half(source + 108, block + D + 2 * lane)
    for part in range(PARTS):
        target = block + part * PART_BYTES
        pack_fifth_bits_of_bytes(source, part, target + THIRD + 4 * lane)
        for half in range(2):
            pairs = source + 32 + 32 * (part // 4) + 16 * half
            pack_bit_pairs(pairs, 2 * (part % 4), target + 64 * half + 4 * lane)
            j = 2 * part + half
            low = load_uint8_scalar(source + 96 + j % 8) >> (4 * (j // 8)) & 15
            upper = load_uint8_scalar(source + 104 + j % 4) >> (2 * (j // 4)) & 3
            store_uint8_scalar(target + SCALES + 16 * half + lane, (low | upper << 4) - 32)


@kernel
def q3_k_decode_row(tile: int, lane: int, num_blocks: int, out: int) -> None:
    """out[k] = d · (scale - 32) · (q - 4)."""
    for _ in range(num_blocks // PARTS):
        d = load_half_scalar(tile + D + 2 * lane)
        for _ in range(PARTS):
            for k in range(32):
                half = k // 16
                scale = np.int8(load_uint8_scalar(tile + SCALES + 16 * half + lane))
                third = load_uint8_scalar(tile + THIRD + 4 * lane + k % 4) >> (k // 4) & 1
                q = bit_pair_of(load_uint8_scalar(tile + 64 * half + 4 * lane + k % 4), k) | third << 2
                store_scalar(out, d * np.float32(scale) * np.float32(q - 4))
                out += 4
            tile += PART_BYTES
        tile += BYTES - D


@kernel
def q3_k_expand(tile: int, num_blocks: int, panel: int) -> None:
    """A tile's weights as signed bytes, with their scales, into a panel (``tiles.panel``)."""
    for _ in range(num_blocks // PARTS):
        d = load_half(tile + D)
        for _ in range(PARTS):
            third = load_uint8(tile + THIRD)
            for half in range(2):
                low = load_uint8(tile + 64 * half)
                for group in range(4):
                    weights = _with_third_bits(low, third)
                    store_uint8(panel + 64 * group, sub_bytes(weights, splat_uint8(4)))
                    low, third = next_bit_pairs(low), shift_right_bytes(third, splat_uint8(1))
                store(panel + PANEL_HALF_SCALES, mul(d, to_float(load_int8(tile + SCALES + 16 * half))))
                panel += STEP
            tile += PART_BYTES
        tile += BYTES - D


Q3_K: Final = TileFormat(
    block_type=BY_NAME["Q3_K"],
    block_bytes=BYTES,
    pack_block=q3_k_pack_block,
    multiply_one=_multiply(1),
    multiply_many=_multiply(ROW_BLOCK),
    decode_row=q3_k_decode_row,
    expand=q3_k_expand,
    multiply_panel=MULTIPLY_HALVES,
)
