"""IQ4_NL: blocks of 32 weights of 4 bits with a scale d: w = d · level(q), q in 0 … 15 (``levels``).

In the file and in the tile, a block is that of Q4_0, and is packed as it.

With x ≈ s · a (a int8, s the block's scale):  Σ w·x = d · s · (Σ (level + 128)·a - 128 · Σ a).
"""

from typing import Final

import numpy as np

from cutaway.formats.blocks import BY_NAME
from cutaway.ops.cpu.arrays import GROUP_STRIDE, SCALE_STRIDE
from cutaway.ops.cpu.tiles.layout import ROW_BLOCK, TileFormat, fetch_ahead, payload_place
from cutaway.ops.cpu.tiles.levels import dot_levels, expand_levels, level_of
from cutaway.ops.cpu.tiles.nibbles import nibble_of
from cutaway.ops.cpu.tiles.panel import MULTIPLY, PANEL_SCALES, step_bytes
from cutaway.ops.cpu.tiles.q4_0 import BYTES, SCALE, q4_0_pack_block
from cutaway.ops.kernel_cache import Kernel, kernel
from cutaway.ops.simd import (
    add,
    fma,
    load,
    load_half,
    load_half_scalar,
    load_uint8_scalar,
    mul,
    mul_int,
    splat_int,
    splat_rows,
    splat_rows_int,
    store,
    store_rows,
    store_scalar,
    to_float,
    zeros,
)

STEP: Final = step_bytes(32, False)  # of a panel


def _multiply(M: int) -> Kernel:
    """The kernel for M rows of activations; see ``layout.WEIGHT`` for its arguments."""

    def iq4_nl_multiply(
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
            products = mul_int(splat_rows_int(block_sum, SCALE_STRIDE, M), splat_int(-128))
            products = dot_levels(products, tile, q, q_stride)
            scaled = mul(to_float(products), splat_rows(scale, SCALE_STRIDE, M))
            total = fma(scaled, load_half(tile + SCALE), total)
            tile += BYTES
            q += 32
            scale += GROUP_STRIDE
            block_sum += GROUP_STRIDE
        store_rows(out, out_stride, total)

    iq4_nl_multiply.__qualname__ = f"iq4_nl_multiply_{M}"
    return kernel(iq4_nl_multiply)


@kernel
def iq4_nl_decode_row(tile: int, lane: int, num_blocks: int, out: int) -> None:
    """out[k] = d · level(q)."""
    for _ in range(num_blocks):
        d = load_half_scalar(tile + SCALE + 2 * lane)
        for k in range(32):
            nibble = nibble_of(load_uint8_scalar(tile + 4 * lane + payload_place(k % 16)), k)
            store_scalar(out, np.float32(level_of(nibble)) * d)
            out += 4
        tile += BYTES


@kernel
def iq4_nl_expand(tile: int, num_blocks: int, panel: int) -> None:
    """A tile's weights as signed bytes, with their scales, into a panel (``tiles.panel``)."""
    for _ in range(num_blocks):
        expand_levels(tile, panel)
        store(panel + PANEL_SCALES, load_half(tile + SCALE))
        tile += BYTES
        panel += STEP


IQ4_NL: Final = TileFormat(
    block_type=BY_NAME["IQ4_NL"],
    block_bytes=BYTES,
    pack_block=q4_0_pack_block,
    multiply_one=_multiply(1),
    multiply_many=_multiply(ROW_BLOCK),
    decode_row=iq4_nl_decode_row,
    expand=iq4_nl_expand,
    multiply_panel=MULTIPLY,
)
