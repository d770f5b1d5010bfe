"""The tile: 16 rows of a weight matrix, interleaved so that a lane of a vector is a row.

In: rows of blocks of 32 as a file stores them, [scales, float16][payload]. Out: for each block, groups of 64 bytes,
then the scales:

    group g:   | row 0: 4 bytes | row 1: 4 bytes | … | row 15: 4 bytes |      payload bytes 4g … 4g + 3 of each row
    scale s:   | row 0: float16 | row 1: float16 | … | row 15: float16 |

One vector load brings the same four payload bytes of 16 rows, one instruction multiplies them with four bytes of an
activation row, and sums stay in their lanes. No value changes: the repack moves bytes (and flips the sign bit where a
format says so). The rows missing in a last, partial tile are zeros.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cutaway.ops.kernel_cache import Kernel, jit
from cutaway.ops.simd.lowering import LOWERING

BLOCK: Final = 32  # weights of one row that share their scales
TILE_ROWS: Final = 16
ROW_BLOCK: Final = {"avx512": 8, "avx2": 2}[LOWERING]
"""Rows of activations that a tile kernel takes at once; as many as the registers hold."""

WEIGHT: Final = np.dtype(
    [
        ("tiles", np.int64),  # address of the first tile
        ("bias", np.int64),  # address of float32 [rows, padded to tiles]
        ("multiply_one", np.int64),  # address of the kernel for one row of activations
        ("multiply_many", np.int64),  # … for ROW_BLOCK rows
        ("decode_row", np.int64),  # … that decodes one row to float32
        ("rows", np.int64),  # N
        ("columns", np.int64),  # K
        ("tile_bytes", np.int64),
    ]
)
"""A weight matrix as compiled code sees it: a record, so that one compiled forward serves any mixture of formats.

    multiply(tile, num_blocks, bias, q, q_stride, scale, block_sum, scaled_sum, block_stride, out, out_stride)
        for M rows of activations r and the tile's 16 rows n:  out[r, n] = bias[n] + Σ_k w[n, k] · x[r, k]
    decode_row(tile, lane, num_blocks, out)
        out[k] = w[lane, k]

All arguments are int64: addresses, counts, strides in bytes.
"""


@dataclass(frozen=True)
class TileFormat:
    """How one block format is laid out in tiles, and its kernels."""

    name: str
    scales: int  # float16 numbers at the head of a block in the file
    payload_bytes: int  # bytes behind them
    flip: int  # XORed to each payload byte; 128 makes signed bytes unsigned
    multiply_one: Kernel
    multiply_many: Kernel
    decode_row: Kernel

    @property
    def block_bytes(self) -> int:
        """Bytes of one row's block in the file."""
        return 2 * self.scales + self.payload_bytes

    def tile_bytes(self, columns: int) -> int:
        """Bytes of one tile: no more than the file's blocks of its 16 rows."""
        return columns // BLOCK * TILE_ROWS * self.block_bytes

    def size(self, rows: int, columns: int) -> int:
        """Bytes of a whole matrix in tiles."""
        return -(-rows // TILE_ROWS) * self.tile_bytes(columns)

    @property
    def kernels(self) -> tuple[Kernel, Kernel, Kernel]:
        """All of the format's kernels."""
        return self.multiply_one, self.multiply_many, self.decode_row


@jit
def _repack(
    source: Any, rows: int, blocks: int, scales: int, payload: int, flip: int, first: int, end: int, out: Any
) -> None:
    """Tiles first … end - 1. source: [rows, blocks · block_bytes] uint8, out: [tiles, tile_bytes] uint8."""
    block_bytes = 2 * scales + payload
    for tile in range(first, end):
        for block in range(blocks):
            target = block * TILE_ROWS * block_bytes
            for lane in range(TILE_ROWS):
                row = tile * TILE_ROWS + lane
                for byte in range(payload):
                    value = np.uint8(0)
                    if row < rows:
                        value = source[row, block * block_bytes + 2 * scales + byte] ^ np.uint8(flip)
                    out[tile, target + byte // 4 * 64 + lane * 4 + byte % 4] = value
                for byte in range(2 * scales):
                    value = np.uint8(0)
                    if row < rows:
                        value = source[row, block * block_bytes + byte]
                    out[tile, target + payload * TILE_ROWS + byte // 2 * 32 + lane * 2 + byte % 2] = value


def repack(tile_format: TileFormat, source: Any, out: Any, first: int = 0, end: int | None = None) -> None:
    """Fill tiles ``first`` … ``end`` - 1 of ``out`` [tiles, tile_bytes] from ``source`` [N, bytes a row], both uint8.

    Runs without the GIL: several threads may each fill their own range of tiles.
    """
    rows, row_bytes = source.shape
    blocks = row_bytes // tile_format.block_bytes
    stop = out.shape[0] if end is None else end
    _repack(
        source,
        rows,
        blocks,
        tile_format.scales,
        tile_format.payload_bytes,
        tile_format.flip,
        first,
        stop,
        out,
    )
