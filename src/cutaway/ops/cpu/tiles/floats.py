"""F32, F16 and BF16: weights that are not quantised, each a number of 4 or 2 bytes.

In the tile, a block is 32 weights, weight k of all 16 rows side by side (2,048 or 1,024 bytes, as in the file). All
arithmetic is in float32, which holds every float16 and bfloat16.

The activations are those of all formats, x ≈ s · a (a int8, s the block's scale), so that a product of the model has
one input whatever its weights are:  Σ w·x = s · Σ w·a  for each 32 weights, in the order of their columns.
"""

from typing import Final

from cutaway.formats.blocks import BY_NAME
from cutaway.ops.cpu.arrays import GROUP_STRIDE, SCALE_STRIDE
from cutaway.ops.cpu.tiles.layout import (
    ROW_BLOCK,
    TILE_ROWS,
    TileFormat,
    fetch_ahead,
    move_half,
)
from cutaway.ops.kernel_cache import Kernel, kernel
from cutaway.ops.simd import (
    add,
    fma,
    load,
    load_bfloat,
    load_half,
    load_half_scalar,
    load_scalar,
    splat_rows,
    splat_rows_int8,
    store_rows,
    store_scalar,
    store_uint8_scalar,
    to_float,
    zeros,
)

SIZES: Final = {"F32": 4, "F16": 2, "BF16": 2}  # bytes of a weight
KINDS: Final = {"F32": 0, "F16": 1, "BF16": 2}  # a kernel may close over numbers, not over names


def _multiply(name: str, M: int) -> Kernel:
    """The kernel for M rows of activations; see ``layout.WEIGHT`` for its arguments."""
    kind, size = KINDS[name], SIZES[name]

    def float_multiply(
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
            products = zeros(M)
            for _ in range(32):
                fetch_ahead(tile, TILE_ROWS * size)
                weights = load(tile) if kind == 0 else load_half(tile) if kind == 1 else load_bfloat(tile)
                products = fma(weights, to_float(splat_rows_int8(q, q_stride, M)), products)
                tile += TILE_ROWS * size
                q += 1
            total = fma(products, splat_rows(scale, SCALE_STRIDE, M), total)
            scale += GROUP_STRIDE
        store_rows(out, out_stride, total)

    float_multiply.__qualname__ = f"{name.lower()}_multiply_{M}"
    return kernel(float_multiply)


def _pack_block(name: str) -> Kernel:
    size = SIZES[name]

    def float_pack_block(source: int, lane: int, block: int) -> None:
        """32 weights of a row into its lane."""
        for k in range(32):
            for byte in range(0, size, 2):
                move_half(source + k * size + byte, block + (k * TILE_ROWS + lane) * size + byte)

    float_pack_block.__qualname__ = f"{name.lower()}_pack_block"
    return kernel(float_pack_block)


def _decode_row(name: str) -> Kernel:
    kind, size = KINDS[name], SIZES[name]

    def float_decode_row(tile: int, lane: int, num_blocks: int, out: int) -> None:
        """out[k] = w."""
        source = tile + lane * size
        for _ in range(32 * num_blocks):
            if kind == 0:
                store_scalar(out, load_scalar(source))
            elif kind == 1:
                store_scalar(out, load_half_scalar(source))
            else:  # a bfloat16 is the upper half of a float32
                store_uint8_scalar(out, 0)
                store_uint8_scalar(out + 1, 0)
                move_half(source, out + 2)
            source += TILE_ROWS * size
            out += 4

    float_decode_row.__qualname__ = f"{name.lower()}_decode_row"
    return kernel(float_decode_row)


def _format(name: str) -> TileFormat:
    return TileFormat(
        block_type=BY_NAME[name],
        block_bytes=32 * TILE_ROWS * SIZES[name],
        pack_block=_pack_block(name),
        multiply_one=_multiply(name, 1),
        multiply_many=_multiply(name, ROW_BLOCK),
        decode_row=_decode_row(name),
        blocks_taken=32,
    )


F32: Final = _format("F32")
F16: Final = _format("F16")
BF16: Final = _format("BF16")
