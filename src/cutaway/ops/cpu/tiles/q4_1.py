"""Q4_1: blocks of 32 weights of 4 bits with a scale d and a minimum m: w = d · q + m, q in 0 … 15.

In the tile, a block is 4 groups of nibbles, then d, then m (320 bytes for 16 rows, as in the file):

    group g of row n:  low nibbles = weights 4g … 4g + 3,  high nibbles = weights 16 + 4g … 16 + 4g + 3

With x ≈ s · a (a int8, s the block's scale):  Σ w·x = d · (s · Σ q·a) + m · (s · Σ a).
"""

from typing import Final

import numpy as np

from cutaway.formats.blocks import BY_NAME
from cutaway.ops.cpu.arrays import GROUP_STRIDE, SCALE_STRIDE
from cutaway.ops.cpu.tiles.layout import ROW_BLOCK, TileFormat, fetch_ahead, move_half, move_payload, payload_place
from cutaway.ops.cpu.tiles.nibbles import dot_nibbles, expand_nibbles, nibble_of
from cutaway.ops.cpu.tiles.panel import MULTIPLY_WITH_MINIMA, PANEL_MINIMA, PANEL_SCALES, step_bytes
from cutaway.ops.kernel_cache import Kernel, kernel
from cutaway.ops.simd import (
    add,
    fma,
    load,
    load_half,
    load_half_scalar,
    load_uint8_scalar,
    mul,
    splat_rows,
    store,
    store_rows,
    store_scalar,
    to_float,
    zeros,
    zeros_int,
)

SCALE, MINIMUM, BYTES = 256, 288, 320  # offsets in a block of the tile, and its size
STEP: Final = step_bytes(32, True)  # of a panel


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
        out: int,
        out_stride: int,
    ) -> None:
        total = add(zeros(M), load(bias))
        for _ in range(num_blocks):
            fetch_ahead(tile, BYTES)
            products = dot_nibbles(zeros_int(M), tile, q, q_stride)
            total = fma(load_half(tile + MINIMUM), splat_rows(scaled_sum, SCALE_STRIDE, M), total)
            scaled = mul(to_float(products), splat_rows(scale, SCALE_STRIDE, M))
            total = fma(scaled, load_half(tile + SCALE), total)
            tile += BYTES
            q += 32
            scale += GROUP_STRIDE
            scaled_sum += GROUP_STRIDE
        store_rows(out, out_stride, total)

    q4_1_multiply.__qualname__ = f"q4_1_multiply_{M}"
    return kernel(q4_1_multiply)


@kernel
def q4_1_pack_block(source: int, lane: int, block: int) -> None:
    """A row's block of the file into its lane."""
    move_half(source, block + SCALE + 2 * lane)
    move_half(source + 2, block + MINIMUM + 2 * lane)
    move_payload(source + 4, block + 4 * lane, 4)


@kernel
def q4_1_decode_row(tile: int, lane: int, num_blocks: int, out: int) -> None:
    """out[k] = d · q + m, the product rounded before the sum: the file format's definition."""
    target = out
    for _ in range(num_blocks):
        d, m = load_half_scalar(tile + SCALE + 2 * lane), load_half_scalar(tile + MINIMUM + 2 * lane)
        for k in range(32):
            nibble = nibble_of(load_uint8_scalar(tile + 4 * lane + payload_place(k % 16)), k)
            store_scalar(target, np.float32(nibble) * d + m)
            target += 4
        tile += BYTES


@kernel
def q4_1_expand(tile: int, num_blocks: int, panel: int) -> None:
    """A tile's weights as signed bytes, with their scales, into a panel (``tiles.panel``)."""
    for _ in range(num_blocks):
        expand_nibbles(tile, 0, panel)
        store(panel + PANEL_SCALES, load_half(tile + SCALE))
        store(panel + PANEL_MINIMA, load_half(tile + MINIMUM))
        tile += BYTES
        panel += STEP


Q4_1: Final = TileFormat(
    block_type=BY_NAME["Q4_1"],
    block_bytes=BYTES,
    pack_block=q4_1_pack_block,
    multiply_one=_multiply(1),
    multiply_many=_multiply(ROW_BLOCK),
    decode_row=q4_1_decode_row,
    expand=q4_1_expand,
    multiply_panel=MULTIPLY_WITH_MINIMA,
)
