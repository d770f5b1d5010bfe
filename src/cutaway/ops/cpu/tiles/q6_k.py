"""Q6_K: blocks of 256 weights of 6 bits, 16 by 16 with a scale: w = d · scale · (q - 32), q in 0 … 63.

In the tile, a block is 8 parts of 32 weights, then d (3,360 bytes for 16 rows, as in the file). A part is 4 groups of
nibbles, whose low ones are weights 0 … 15 and whose high ones weights 16 … 31; 2 groups of upper bits (``bit_pairs``),
one for each of these halves; and the scales of both as signed bytes.

With x ≈ s · a (a int8, s the block's scale):  Σ w·x = (d · scale) · s · (Σ q·a - Σ 32·a) for each half. The product of
d and scale is exact in float32: 11 times 8 bits.
"""

from typing import Any, Final

import numpy as np

from cutaway.formats.blocks import BY_NAME
from cutaway.ops.cpu.arrays import GROUP_STRIDE, SCALE_STRIDE
from cutaway.ops.cpu.tiles.bit_pairs import bit_pair_of, dot_constant, next_bit_pairs, pack_bit_pairs
from cutaway.ops.cpu.tiles.layout import ROW_BLOCK, TileFormat, fetch_ahead, move_half, payload_place
from cutaway.ops.cpu.tiles.nibbles import nibble_of
from cutaway.ops.cpu.tiles.panel import MULTIPLY_HALVES, PANEL_HALF_SCALES, step_bytes
from cutaway.ops.cpu.tiles.parts import PARTS, pack_part_nibbles
from cutaway.ops.kernel_cache import Kernel, inlined, kernel
from cutaway.ops.simd import (
    add,
    add_int,
    and_bytes,
    dot_u7,
    fma,
    high_nibbles,
    load,
    load_half,
    load_half_scalar,
    load_int8,
    load_uint8,
    load_uint8_scalar,
    low_nibbles,
    mul,
    mul_int,
    or_bytes,
    shift_left_bytes,
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

UPPER, SCALES, PART_BYTES = 256, 384, 416  # offsets in a part, and its size
D = PARTS * PART_BYTES  # offset in a block of the tile, and its size
BYTES = D + 32
STEP: Final = step_bytes(16, False)  # of a panel


@inlined
def _with_upper_bits(nibbles: Any, upper: Any) -> Any:
    """Bytes of 6 bits: nibbles below the lowest two bits of each byte of ``upper``."""
    return or_bytes(nibbles, and_bytes(shift_left_bytes(upper, splat_uint8(4)), splat_uint8(48)))


def _multiply(M: int) -> Kernel:
    """The kernel for M rows of activations; see ``layout.WEIGHT`` for its arguments."""

    def q6_k_multiply(
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
                offset = dot_constant(zeros_int(M), 32, q, q_stride)  # Σ 32·a over the first half

                products, upper = zeros_int(M), load_uint8(tile + UPPER)
                for group in range(4):
                    weights = _with_upper_bits(low_nibbles(load_uint8(tile + 64 * group)), upper)
                    products = dot_u7(products, weights, q + 4 * group, q_stride)
                    upper = next_bit_pairs(upper)
                scaled = mul(to_float(sub_int(products, offset)), factor)
                total = fma(scaled, mul(d, to_float(load_int8(tile + SCALES))), total)

                products = add_int(offset, mul_int(splat_rows_int(block_sum, SCALE_STRIDE, M), splat_int(-32)))
                upper = load_uint8(tile + UPPER + 64)
                for group in range(4):
                    weights = _with_upper_bits(high_nibbles(load_uint8(tile + 64 * group)), upper)
                    products = dot_u7(products, weights, q + 16 + 4 * group, q_stride)
                    upper = next_bit_pairs(upper)
                scaled = mul(to_float(products), factor)
                total = fma(scaled, mul(d, to_float(load_int8(tile + SCALES + 16))), total)

                tile += PART_BYTES
                q += 32
                scale += GROUP_STRIDE
                block_sum += GROUP_STRIDE
            tile += BYTES - D
        store_rows(out, out_stride, total)

    q6_k_multiply.__qualname__ = f"q6_k_multiply_{M}"
    return kernel(q6_k_multiply)


@kernel
def q6_k_pack_block(source: int, lane: int, block: int) -> None:
    """A row's block of the file into its lane; ``formats.blocks`` defines where the file has which bits."""
    move_half(source + 208, block + D + 2 * lane)
    for part in range(PARTS):
        target = block + part * PART_BYTES
        nibbles = source + 64 * (part // 4) + 32 * (part % 2)
        pairs = source + 128 + 32 * (part // 4)
        pack_part_nibbles(nibbles, 4 * (part % 4 // 2), target + 4 * lane)
        for half in range(2):
            pack_bit_pairs(pairs + 16 * half, 2 * (part % 4), target + UPPER + 64 * half + 4 * lane)
            scale = load_uint8_scalar(source + 192 + 2 * part + half)
            store_uint8_scalar(target + SCALES + 16 * half + lane, scale)


@kernel
def q6_k_decode_row(tile: int, lane: int, num_blocks: int, out: int) -> None:
    """out[k] = d · scale · (q - 32)."""
    for _ in range(num_blocks // PARTS):
        d = load_half_scalar(tile + D + 2 * lane)
        for _ in range(PARTS):
            for k in range(32):
                half = k // 16
                scale = np.int8(load_uint8_scalar(tile + SCALES + 16 * half + lane))
                upper = bit_pair_of(load_uint8_scalar(tile + UPPER + 64 * half + 4 * lane + k % 4), k)
                q = nibble_of(load_uint8_scalar(tile + 4 * lane + payload_place(k % 16)), k) | upper << 4
                store_scalar(out, d * np.float32(scale) * np.float32(q - 32))
                out += 4
            tile += PART_BYTES
        tile += BYTES - D


@kernel
def q6_k_expand(tile: int, num_blocks: int, panel: int) -> None:
    """A tile's weights as signed bytes, with their scales, into a panel (``tiles.panel``)."""
    for _ in range(num_blocks // PARTS):
        d = load_half(tile + D)
        for _ in range(PARTS):
            for half in range(2):
                upper, target = load_uint8(tile + UPPER + 64 * half), panel + half * STEP
                for group in range(4):
                    pairs = load_uint8(tile + 64 * group)
                    weights = _with_upper_bits(high_nibbles(pairs) if half else low_nibbles(pairs), upper)
                    store_uint8(target + 64 * group, sub_bytes(weights, splat_uint8(32)))
                    upper = next_bit_pairs(upper)
                store(target + PANEL_HALF_SCALES, mul(d, to_float(load_int8(tile + SCALES + 16 * half))))
            tile += PART_BYTES
            panel += 2 * STEP
        tile += BYTES - D


Q6_K: Final = TileFormat(
    block_type=BY_NAME["Q6_K"],
    block_bytes=BYTES,
    pack_block=q6_k_pack_block,
    multiply_one=_multiply(1),
    multiply_many=_multiply(ROW_BLOCK),
    decode_row=q6_k_decode_row,
    expand=q6_k_expand,
    multiply_panel=MULTIPLY_HALVES,
)
