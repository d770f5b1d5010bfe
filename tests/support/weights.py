"""Random weight matrices in block formats: the file's bytes, their values by another reader, and our tiles of them.

In: a format, rows, columns, a seed. Out: a ``TiledMatrix``. The values come from the ``gguf`` package.
"""

from typing import Any, NamedTuple

import gguf
import numpy as np
import numpy.typing as npt

from cutaway.ops.cpu.tiles import TILE_FORMATS, WEIGHT, repack
from cutaway.ops.cpu.tiles.layout import TILE_ROWS


class Layout(NamedTuple):
    """A block of the file: how many weights in how many bytes, and where its float16 scales stand.

    Of weights that are numbers, 32 count as a block; the "scale" is where a flipped bit matters.
    """

    weights: int
    bytes: int
    halves: tuple[int, ...]


LAYOUTS = {
    "Q4_0": Layout(32, 18, (0,)),
    "Q4_1": Layout(32, 20, (0, 2)),
    "Q5_0": Layout(32, 22, (0,)),
    "Q5_1": Layout(32, 24, (0, 2)),
    "Q8_0": Layout(32, 34, (0,)),
    "Q2_K": Layout(256, 84, (80, 82)),
    "Q3_K": Layout(256, 110, (108,)),
    "Q4_K": Layout(256, 144, (0, 2)),
    "Q5_K": Layout(256, 176, (0, 2)),
    "Q6_K": Layout(256, 210, (208,)),
    "IQ4_NL": Layout(32, 18, (0,)),
    "IQ4_XS": Layout(256, 136, (0,)),
    "F32": Layout(32, 128, (2,)),
    "F16": Layout(32, 64, (0,)),
    "BF16": Layout(32, 64, (0,)),
}
NUMBERS = ("F32", "F16", "BF16")


def as_numbers(name: str, values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.uint8]:
    """Values as the bytes of one of ``NUMBERS``; bfloat16 by dropping the lower half of a float32."""
    if name == "F16":
        return np.ascontiguousarray(values.astype("<f2")).view(np.uint8)
    halves = np.ascontiguousarray(values.astype("<f4")).view("<u2")
    return np.ascontiguousarray(halves if name == "F32" else halves[..., 1::2]).view(np.uint8)


def payload_bytes(name: str) -> list[int]:
    """The bytes of a block that are no float16 scale; none of those of numbers."""
    if name in NUMBERS:
        return []
    layout = LAYOUTS[name]
    return [byte for byte in range(layout.bytes) if all(byte - half not in (0, 1) for half in layout.halves)]


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
    layout, rng = LAYOUTS[name], np.random.default_rng(seed)
    count = columns // layout.weights
    if name in NUMBERS:
        values = rng.standard_normal((rows, columns)) * 10.0 ** rng.integers(-3, 1, (rows, 1))
        values[rng.random(values.shape) < 0.02] = 0
        values[rng.random(values.shape) < 0.02] = 3e-7
        return as_numbers(name, values)
    blocks = rng.integers(0, 256, (rows, count, layout.bytes), np.uint8)
    for half in layout.halves:
        scales = rng.standard_normal((rows, count)) * 10.0 ** rng.integers(-3, 1, (rows, 1))
        scales[rng.random(scales.shape) < 0.02] = 0
        scales[rng.random(scales.shape) < 0.02] = 3e-7
        blocks[..., half : half + 2] = scales.astype(np.float16)[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


def tile(name: str, raw: npt.NDArray[np.uint8], columns: int, bias: npt.NDArray[np.float32]) -> TiledMatrix:
    """The matrix of these bytes, repacked. A bias of zeros is no bias."""
    layout, rows = TILE_FORMATS[name], raw.shape[0]
    tiles = np.full((-(-rows // TILE_ROWS), layout.tile_bytes(columns)), 0xEE, np.uint8)
    repack(layout, raw, tiles)
    padded = np.zeros(tiles.shape[0] * TILE_ROWS, np.float32)
    padded[:rows] = bias
    record = np.zeros(1, WEIGHT)
    record[0] = layout.record(tiles.ctypes.data, padded.ctypes.data, rows, columns)
    with np.errstate(invalid="ignore"):  # scales may be infinite or NaN
        values = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name]).astype(np.float32)
    return TiledMatrix(raw, values, bias, tiles, record, (tiles, padded))


def random_matrix(name: str, rows: int, columns: int, seed: int, with_bias: bool = False) -> TiledMatrix:
    """A random matrix of this format."""
    bias = np.random.default_rng(seed + 1).standard_normal(rows).astype(np.float32) * with_bias
    return tile(name, random_blocks(name, rows, columns, seed), columns, bias.astype(np.float32))
