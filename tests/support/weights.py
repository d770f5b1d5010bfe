"""Random weight matrices in block formats: the file's bytes, their values by another reader, and our tiles of them.

In: a format, rows, columns, a seed. Out: a ``TiledMatrix``. The values come from the ``gguf`` package.
"""

from typing import Any, NamedTuple

import gguf
import numpy as np
import numpy.typing as npt

from cutaway.ops.cpu.tiles import TILE_FORMATS, WEIGHT, repack
from cutaway.ops.cpu.tiles.layout import TILE_ROWS

SCALES = {"Q4_0": 1, "Q4_1": 2, "Q8_0": 1}
BLOCK_BYTES = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}


class TiledMatrix(NamedTuple):
    """A matrix [N, K]. ``keep`` owns the memory that the record points into."""

    raw: npt.NDArray[np.uint8]  # [N, bytes a row], as a file has it
    values: npt.NDArray[np.float32]  # [N, K]
    bias: npt.NDArray[np.float32]  # [N]
    tiles: npt.NDArray[np.uint8]  # [tiles, tile bytes]
    record: npt.NDArray[Any]  # [1] WEIGHT
    keep: tuple[Any, ...]


def random_blocks(name: str, rows: int, columns: int, seed: int) -> npt.NDArray[np.uint8]:
    """Bytes of random blocks: every payload, scales of both signs and of several magnitudes, some zero or denormal."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (rows, columns // 32, BLOCK_BYTES[name]), np.uint8)
    scales = rng.standard_normal((rows, columns // 32, SCALES[name])) * 10.0 ** rng.integers(-3, 1, (rows, 1, 1))
    scales[rng.random(scales.shape) < 0.02] = 0
    scales[rng.random(scales.shape) < 0.02] = 3e-7
    blocks[..., : 2 * SCALES[name]] = scales.astype(np.float16).view(np.uint8).reshape(*blocks.shape[:2], -1)
    return blocks.reshape(rows, -1)


def tile(name: str, raw: npt.NDArray[np.uint8], columns: int, bias: npt.NDArray[np.float32]) -> TiledMatrix:
    """The matrix of these bytes, repacked. A bias of zeros is no bias."""
    layout, rows = TILE_FORMATS[name], raw.shape[0]
    tiles = np.full((-(-rows // TILE_ROWS), layout.tile_bytes(columns)), 0xEE, np.uint8)
    repack(layout, raw, tiles)
    padded = np.zeros(tiles.shape[0] * TILE_ROWS, np.float32)
    padded[:rows] = bias
    record = np.zeros(1, WEIGHT)
    kernels = (layout.multiply_one.address, layout.multiply_many.address, layout.decode_row.address)
    record[0] = (tiles.ctypes.data, padded.ctypes.data, *kernels, rows, columns, tiles.shape[1])
    with np.errstate(invalid="ignore"):  # scales may be infinite or NaN
        values = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name]).astype(np.float32)
    return TiledMatrix(raw, values, bias, tiles, record, (tiles, padded))


def random_matrix(name: str, rows: int, columns: int, seed: int, with_bias: bool = False) -> TiledMatrix:
    """A random matrix of this format."""
    bias = np.random.default_rng(seed + 1).standard_normal(rows).astype(np.float32) * with_bias
    return tile(name, random_blocks(name, rows, columns, seed), columns, bias.astype(np.float32))
