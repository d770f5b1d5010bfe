"""Q4_K: blocks of 256 weights of 4 bits in 8 parts of 32: w = d · scale · q - dmin · minimum, q in 0 … 15.

In the tile, a part is 4 groups of nibbles (``nibbles``), then scale and minimum as bytes; a block is its 8 parts,
then d, then dmin (2,368 bytes for 16 rows; in the file 2,304).

With x ≈ s · a (a int8, s the block's scale):  Σ w·x = (d · scale) · (s · Σ q·a) - (dmin · minimum) · (s · Σ a) for each
part. The products in parentheses of d and dmin are exact in float32: 11 times 6 bits.
"""

from typing import Final

import numpy as np

from cutaway.formats.blocks import BY_NAME
from cutaway.ops.cpu.arrays import GROUP_STRIDE, SCALE_STRIDE
from cutaway.ops.cpu.tiles.layout import ROW_BLOCK, TileFormat, fetch_ahead, move_half, payload_place
from cutaway.ops.cpu.tiles.nibbles import dot_nibbles, expand_nibbles, nibble_of
from cutaway.ops.cpu.tiles.panel import MULTIPLY_WITH_MINIMA, PANEL_MINIMA, PANEL_SCALES, step_bytes
from cutaway.ops.cpu.tiles.parts import PARTS, pack_part_nibbles, six_bits
from cutaway.ops.kernel_cache import Kernel, kernel
from cutaway.ops.simd import (
    add,
    fma,
    load,
    load_half,
    load_half_scalar,
    load_int8,
    load_uint8_scalar,
    load_uint32_scalar,
    mul,
    splat,
    splat_rows,
    store,
    store_rows,
    store_scalar,
    store_uint8_scalar,
    to_float,
    zeros,
    zeros_int,
)

SCALES, MINIMA, PART_BYTES = 256, 272, 288  # offsets in a part, and its size
D = PARTS * PART_BYTES  # offsets in a block of the tile, and its size
DMIN = D + 32
BYTES = DMIN + 32
STEP: Final = step_bytes(32, True)  # of a panel


def _multiply(M: int) -> Kernel:
    """The kernel for M rows of activations; see ``layout.WEIGHT`` for its arguments."""

    def q4_k_multiply(
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
                products = dot_nibbles(zeros_int(M), tile, q, q_stride)
                minimum = mul(negative_dmin, to_float(load_int8(tile + MINIMA)))
                total = fma(minimum, splat_rows(scaled_sum, SCALE_STRIDE, M), total)
                scaled = mul(to_float(products), splat_rows(scale, SCALE_STRIDE, M))
                total = fma(scaled, mul(d, to_float(load_int8(tile + SCALES))), total)
                tile += PART_BYTES
                q += 32
                scale += GROUP_STRIDE
                scaled_sum += GROUP_STRIDE
            tile += BYTES - D
        store_rows(out, out_stride, total)

    q4_k_multiply.__qualname__ = f"q4_k_multiply_{M}"
    return kernel(q4_k_multiply)


@kernel
def q4_k_pack_block(source: int, lane: int, block: int) -> None:
    """A row's block of the file into its lane."""
    move_half(source, block + D + 2 * lane)
    move_half(source + 2, block + DMIN + 2 * lane)
    scales, minima, rest = (
        load_uint32_scalar(source + 4),
        load_uint32_scalar(source + 8),
        load_uint32_scalar(source + 12),
    )
    for part in range(PARTS):
        target = block + part * PART_BYTES
        pack_part_nibbles(source + 16 + 32 * (part // 2), 4 * (part % 2), target + 4 * lane)
        store_uint8_scalar(target + SCALES + lane, six_bits(scales, rest, part))
        store_uint8_scalar(target + MINIMA + lane, six_bits(minima, rest >> 4, part))


@kernel
def q4_k_decode_row(tile: int, lane: int, num_blocks: int, out: int) -> None:
    """out[k] = d · scale · q - dmin · minimum, the products exact: the file format's definition."""
    for _ in range(num_blocks // PARTS):
        d, dmin = load_half_scalar(tile + D + 2 * lane), load_half_scalar(tile + DMIN + 2 * lane)
        for _ in range(PARTS):
            scale = d * np.float32(load_uint8_scalar(tile + SCALES + lane))
            minimum = dmin * np.float32(load_uint8_scalar(tile + MINIMA + lane))
            for k in range(32):
                q = nibble_of(load_uint8_scalar(tile + 4 * lane + payload_place(k % 16)), k)
                store_scalar(out, scale * np.float32(q) - minimum)
                out += 4
            tile += PART_BYTES
        tile += BYTES - D


@kernel
def q4_k_expand(tile: int, num_blocks: int, panel: int) -> None:
    """A tile's weights as signed bytes, with their scales, into a panel (``tiles.panel``)."""
    for _ in range(num_blocks // PARTS):
        d, negative_dmin = load_half(tile + D), mul(load_half(tile + DMIN), splat(np.float32(-1.0)))
        for _ in range(PARTS):
            expand_nibbles(tile, 0, panel)
            store(panel + PANEL_SCALES, mul(d, to_float(load_int8(tile + SCALES))))
            store(panel + PANEL_MINIMA, mul(negative_dmin, to_float(load_int8(tile + MINIMA))))
            tile += PART_BYTES
            panel += STEP
        tile += BYTES - D


Q4_K: Final = TileFormat(
    block_type=BY_NAME["Q4_K"],
    block_bytes=BYTES,
    pack_block=q4_k_pack_block,
    multiply_one=_multiply(1),
    multiply_many=_multiply(ROW_BLOCK),
    decode_row=q4_k_decode_row,
    expand=q4_k_expand,
    multiply_panel=MULTIPLY_WITH_MINIMA,
)
