"""The tile: 16 rows of a weight matrix, interleaved so that a lane of a vector is a row.

In: rows of blocks as a file stores them. Out: tiles, block after block. What 16 rows have in a block of 32 weights is,
for example for Q4_1, groups of 64 bytes, then the scales:

    group g:   | row 0: 4 bytes | row 1: 4 bytes | … | row 15: 4 bytes |      payload bytes 4g … 4g + 3 of each row
    scale s:   | row 0: float16 | row 1: float16 | … | row 15: float16 |

One vector load brings the same four payload bytes of 16 rows, one instruction multiplies them with four bytes of an
activation row, and sums stay in their lanes. No value changes: the repack moves bits to where a kernel wants them. The
rows missing in a last, partial tile are packed from a block of zero bytes, which means zeros in every format.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cutaway.formats.blocks import BlockType
from cutaway.ops.kernel_cache import Kernel, inlined, root_jit
from cutaway.ops.simd import (
    call_kernel,
    load_uint8_scalar,
    load_uint32_scalar,
    prefetch,
    store_uint8_scalar,
    store_uint32_scalar,
)
from cutaway.ops.simd.lowering import LOWERING, VECTORS

TILE_ROWS: Final = 16
ROW_BLOCK: Final = {"avx512": 8, "avx2": 2, "neon": 2, "neon_i8mm": 2}[VECTORS]
"""Rows of activations that a tile kernel takes at once; as many as the registers hold. (On aarch64, three would be
written to memory and read back within a block.)
"""

WEIGHT: Final = np.dtype(
    [
        ("tiles", np.int64),  # address of the first tile
        ("bias", np.int64),  # address of float32 [rows, padded to tiles]
        ("multiply_one", np.int64),  # address of the kernel for one row of activations
        ("multiply_many", np.int64),  # … for ROW_BLOCK rows
        ("expand", np.int64),  # … that expands a tile into a panel (``panel``), or 0
        ("multiply_panel", np.int64),  # … for two panels and any number of rows, or 0
        ("decode_row", np.int64),  # … that decodes one row to float32
        ("rows", np.int64),  # N
        ("columns", np.int64),  # K
        ("tile_bytes", np.int64),
    ]
)
"""A weight matrix as compiled code sees it: a record, so that one compiled forward serves any mixture of formats.

    multiply(tile, num_blocks, bias, q, q_stride, scale, block_sum, scaled_sum, out, out_stride)
        for M rows of activations r and the tile's 16 rows n:  out[r, n] = bias[n] + Σ_k w[n, k] · x[r, k]
    expand(tile, num_blocks, panel)
        the tile's weights as signed bytes, with float32 scales
    decode_row(tile, lane, num_blocks, out)
        out[k] = w[lane, k]

A format has one more kernel, which the loader calls:

    pack_block(source, lane, block)
        the row's block of the file at ``source`` into its lane of the tile's block

All arguments are int64: addresses, counts (of blocks of 32), strides in bytes.
"""


@dataclass(frozen=True)
class TileFormat:
    """How one block format is laid out in tiles, and its kernels."""

    block_type: BlockType  # in the file
    block_bytes: int  # of a block of 16 rows in a tile
    pack_block: Kernel
    multiply_one: Kernel
    multiply_many: Kernel
    decode_row: Kernel
    expand: Kernel | None = None  # where the format has panels
    multiply_panel: Kernel | None = None
    blocks_taken: int = 1  # of the file, for a block of the tile; weights that are numbers are blocks of one

    @property
    def name(self) -> str:
        """The block type's."""
        return self.block_type.name

    @property
    def block_size(self) -> int:
        """Weights of a row in a block of the tile: 32 or a multiple."""
        return self.blocks_taken * self.block_type.block_size

    def tile_bytes(self, columns: int) -> int:
        """Bytes of one tile; ``columns`` is a multiple of the block size."""
        return columns // self.block_size * self.block_bytes

    def size(self, rows: int, columns: int) -> int:
        """Bytes of a whole matrix in tiles."""
        return -(-rows // TILE_ROWS) * self.tile_bytes(columns)

    @property
    def panel_kernels(self) -> tuple[Kernel, ...]:
        """Those for panels, if the machine multiplies panels and the format has them."""
        return (self.expand, self.multiply_panel) if LOWERING == "amx" and self.expand and self.multiply_panel else ()

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All of the format's kernels that this machine uses."""
        return self.pack_block, self.multiply_one, self.multiply_many, self.decode_row, *self.panel_kernels

    def record(self, tiles: int, bias: int, rows: int, columns: int) -> tuple[int, ...]:
        """A matrix as ``WEIGHT``: tiles and bias by their addresses. Compiles what isn't compiled yet."""
        expand, multiply_panel = [each.address for each in self.panel_kernels] or (0, 0)
        return (
            tiles,
            bias,
            self.multiply_one.address,
            self.multiply_many.address,
            expand,
            multiply_panel,
            self.decode_row.address,
            rows,
            columns,
            self.tile_bytes(columns),
        )


AHEAD: Final = 4096
"""Bytes between what a kernel multiplies and what it asks memory for: beyond the reach of the processor's own prefetch,
which alone reached two thirds of the streaming limit with one row on an Intel Xeon.
"""


@inlined
def fetch_ahead(block: int, size: int) -> None:
    """Ask memory for a block's successor ``AHEAD`` bytes on, which may lie behind the matrix: nothing is read."""
    for offset in range(0, size, 64):
        prefetch(block + AHEAD + offset)


@inlined
def payload_place(byte: int) -> int:
    """Where a payload byte stands in groups of 64 bytes, from where the first byte of its row stands."""
    return byte // 4 * 64 + byte % 4


@inlined
def move_payload(source: int, target: int, groups: int) -> None:
    """Four payload bytes of a row for each of the groups, which begin at ``target``."""
    for group in range(groups):
        store_uint32_scalar(target + 64 * group, load_uint32_scalar(source + 4 * group))


@inlined
def move_half(source: int, target: int) -> None:
    """Copy two bytes."""
    store_uint8_scalar(target, load_uint8_scalar(source))
    store_uint8_scalar(target + 1, load_uint8_scalar(source + 1))


@root_jit
def _repack(
    pack_block: int,
    source: int,
    row_bytes: int,
    rows: int,
    blocks: int,
    source_block_bytes: int,
    padding: int,
    first: int,
    end: int,
    tiles: int,
    block_bytes: int,
) -> None:
    """Tiles first … end - 1, of ``blocks`` blocks each. Addresses, counts and sizes in bytes."""
    for tile in range(first, end):
        for block in range(blocks):
            for lane in range(TILE_ROWS):
                row = tile * TILE_ROWS + lane
                origin = source + row * row_bytes + block * source_block_bytes if row < rows else padding
                call_kernel(pack_block, (origin, lane, tiles + (tile * blocks + block) * block_bytes))


def repack(tile_format: TileFormat, source: Any, out: Any, first: int = 0, end: int | None = None) -> None:
    """Fill tiles ``first`` … ``end`` - 1 of ``out`` [tiles, tile_bytes] from ``source`` [N, bytes a row], both uint8
    and contiguous.

    Runs without the GIL: several threads may each fill their own range of tiles.
    """
    rows, row_bytes = source.shape
    in_file = tile_format.blocks_taken * tile_format.block_type.bytes_per_block
    padding = np.zeros(in_file, np.uint8)
    _repack(
        tile_format.pack_block.address,
        source.ctypes.data,
        row_bytes,
        rows,
        row_bytes // in_file,
        in_file,
        padding.ctypes.data,
        first,
        out.shape[0] if end is None else end,
        out.ctypes.data,
        tile_format.block_bytes,
    )
