"""IQ4_XS: blocks of 256 weights of 4 bits in 8 parts of 32: w = d · (scale - 32) · level(q), q in 0 … 15 (``levels``).

In the tile, a part is 4 groups of nibbles (``nibbles``), then scale - 32 as a signed byte a row; a block is its 8
parts, then d (2,208 bytes for 16 rows; in the file 2,176, its scales packed in 6 bits).

With x ≈ s · a (a int8, s the block's scale):  Σ w·x = (d · (scale - 32)) · s · (Σ (level + 128)·a - 128 · Σ a) for each
part. The product of d and the scale is exact in float32: 11 times 6 bits.
"""

from typing import Final

import numpy as np

from cutaway.formats.blocks import BY_NAME
from cutaway.ops.cpu.arrays import GROUP_STRIDE, SCALE_STRIDE
from cutaway.ops.cpu.tiles.layout import ROW_BLOCK, TileFormat, fetch_ahead, move_half, move_payload, payload_place
from cutaway.ops.cpu.tiles.levels import dot_levels, expand_levels, level_of
from cutaway.ops.cpu.tiles.nibbles import nibble_of
from cutaway.ops.cpu.tiles.panel import MULTIPLY, PANEL_SCALES, step_bytes
from cutaway.ops.cpu.tiles.parts import PARTS
from cutaway.ops.kernel_cache import Kernel, kernel
from cutaway.ops.simd import (
    add,
    fma,
    load,
    load_half,
    load_half_scalar,
    load_int8,
    load_uint8_scalar,
    mul,
    mul_int,
    splat_int,
    splat_rows,
    splat_rows_int,
    store,
    store_rows,
    store_scalar,
    store_uint8_scalar,
    to_float,
    zeros,
)

SCALES, PART_BYTES = 256, 272  # offset in a part, and its size
D = PARTS * PART_BYTES  # offset in a block of the tile, and its size
BYTES = D + 32
STEP: Final = step_bytes(32, False)  # of a panel


def _multiply(M: int) -> Kernel:
    """The kernel for M rows of activations; see ``layout.WEIGHT`` for its arguments."""

    def iq4_xs_multiply(
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
                products = mul_int(splat_rows_int(block_sum, SCALE_STRIDE, M), splat_int(-128))
                products = dot_levels(products, tile, q, q_stride)
                scaled = mul(to_float(products), splat_rows(scale, SCALE_STRIDE, M))
                total = fma(scaled, mul(d, to_float(load_int8(tile + SCALES))), total)
                tile += PART_BYTES
                q += 32
                scale += GROUP_STRIDE
                block_sum += GROUP_STRIDE
            tile += BYTES - D
        store_rows(out, out_stride, total)

    iq4_xs_multiply.__qualname__ = f"iq4_xs_multiply_{M}"
    return kernel(iq4_xs_multiply)


@kernel
def iq4_xs_pack_block(source: int, lane: int, block: int) -> None:
    """A row's block of the file into its lane; ``formats.blocks_of_256`` defines where the file has which bits."""
    move_half(source, block + D + 2 * lane)
    for part in range(PARTS):
        target = block + part * PART_BYTES
        move_payload(source + 8 + 16 * part, target + 4 * lane, 4)
        low = load_uint8_scalar(source + 4 + part // 2) >> (4 * (part % 2)) & 15
        upper = load_uint8_scalar(source + 2 + part // 4) >> (2 * (part % 4)) & 3
        store_uint8_scalar(target + SCALES + lane, (low | upper << 4) - 32)


@kernel
def iq4_xs_decode_row(tile: int, lane: int, num_blocks: int, out: int) -> None:
    """out[k] = d · (scale - 32) · level(q)."""
    for _ in range(num_blocks // PARTS):
        d = load_half_scalar(tile + D + 2 * lane)
        for _ in range(PARTS):
            scale = d * np.float32(np.int8(load_uint8_scalar(tile + SCALES + lane)))
            for k in range(32):
                nibble = nibble_of(load_uint8_scalar(tile + 4 * lane + payload_place(k % 16)), k)
                store_scalar(out, scale * np.float32(level_of(nibble)))
                out += 4
            tile += PART_BYTES
        tile += BYTES - D


@kernel
def iq4_xs_expand(tile: int, num_blocks: int, panel: int) -> None:
    """A tile's weights as signed bytes, with their scales, into a panel (``tiles.panel``)."""
    for _ in range(num_blocks // PARTS):
        d = load_half(tile + D)
        for _ in range(PARTS):
            expand_levels(tile, panel)
            store(panel + PANEL_SCALES, mul(d, to_float(load_int8(tile + SCALES))))
            tile += PART_BYTES
            panel += STEP
        tile += BYTES - D


IQ4_XS: Final = TileFormat(
    block_type=BY_NAME["IQ4_XS"],
    block_bytes=BYTES,
    pack_block=iq4_xs_pack_block,
    multiply_one=_multiply(1),
    multiply_many=_multiply(ROW_BLOCK),
    decode_row=iq4_xs_decode_row,
    expand=iq4_xs_expand,
    multiply_panel=MULTIPLY,
)
