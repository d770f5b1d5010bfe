"""From a file to a model that can run: weights checked against the shape table and repacked into tiles.

In: a model source. Out: a ``LoadedModel``: the records that the forward reads, and the memory that they point into.
Source pages are given back to the system as they are repacked.
"""

import math
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from cutaway.errors import ModelFileError
from cutaway.formats.blocks import dequantize
from cutaway.formats.source import ModelSource
from cutaway.formats.tensor import Tensor
from cutaway.model.assemble import assemble
from cutaway.model.config import ModelConfig, read_config
from cutaway.model.records import Model
from cutaway.model.shapes import OPTIONAL, Limits, Part, Row, dimensions, weights_of
from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.memory import Arena, aligned
from cutaway.ops.cpu.norm import NORM
from cutaway.ops.cpu.tiles import TILE_FORMATS, WEIGHT, TileFormat, repack
from cutaway.ops.cpu.tiles.layout import TILE_ROWS

POSITION_ROWS: Final = "position_embd.weight"
TILES_A_JOB = 256  # a repacking job's share of a large matrix


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory. ``arena`` holds its tiles; the records hold their addresses."""

    config: ModelConfig
    record: Model
    arena: Arena
    formats: tuple[str, ...]  # block formats among the matrices


def expected_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The tensors that a model of this config has, each with its shape; those of ``OPTIONAL`` it may lack."""
    sizes = dimensions(config, Limits(1, 1, 1, 1, 1))
    return {
        row.name.format(l=layer): row.size(sizes)
        for row in weights_of(config)
        for layer in (range(config.num_layers) if "{l}" in row.name else (0,))
    }


def check_tensors(source: ModelSource, config: ModelConfig) -> None:
    """Every tensor must be there, with its shape, and none besides. Raises ModelFileError that lists what is wrong."""
    expected = expected_tensors(config)
    missing = [source.named(name) for name in expected if name not in source.tensors and name not in OPTIONAL]
    unknown = [name for name in source.tensors if name not in expected]
    wrong = [
        f"{source.named(name)} is {list(source.tensors[name].shape)}, not {list(shape)}"
        for name, shape in expected.items()
        if name in source.tensors and source.tensors[name].shape != shape
    ]
    for title, names in (
        ("missing", missing),
        ("not used by this family", unknown),
        ("of the wrong shape", wrong),
    ):
        if names:
            shown = "; ".join(names[:5]) + (f"; and {len(names) - 5} more" if len(names) > 5 else "")
            raise ModelFileError(
                f"{source.path}: {len(names)} tensors are {title}: {shown}. The file is incomplete or of another "
                "family; fetch it again."
            )


def tile_format(source: ModelSource, tensor: Tensor) -> TileFormat:
    """The tile format of a matrix. Raises ModelFileError for a block type without a kernel."""
    try:
        return TILE_FORMATS[tensor.block_type.name]
    except KeyError:
        raise ModelFileError(
            f"{source.path}: the matrix {tensor.name!r} has the block type {tensor.block_type.name}; there are kernels "
            f"for {', '.join(TILE_FORMATS)}. Use a file in one of these."
        ) from None


def memory_bytes(tensor: Tensor) -> int:
    """What a tensor takes once loaded: a matrix in tiles, a vector and rows of positions in float32. Of a type without
    a kernel, 0.
    """
    if len(tensor.shape) != 2 or tensor.name == POSITION_ROWS:
        return 4 * math.prod(tensor.shape)
    layout = TILE_FORMATS.get(tensor.block_type.name)
    return 0 if layout is None else layout.size(*tensor.shape)


def read_floats(source: ModelSource, name: str) -> Floats:
    """A norm's weight, a bias, rows of positions, as float32. Raises ModelFileError for one in blocks."""
    tensor = source.tensors[name]
    if tensor.block_type.name not in ("F32", "F16", "BF16"):
        raise ModelFileError(
            f"{source.path}: the vector {name!r} has the block type {tensor.block_type.name}; "
            "it must be F32, F16 or BF16."
        )
    # A copy: read-only memory of the file would be another type to the compiled forward.
    return np.array(dequantize(tensor.block_type, tensor.data).reshape(tensor.shape))


def position_rows_of(source: ModelSource, config: ModelConfig) -> Floats | None:
    """The learned rows [P, D]; None where the model has none."""
    return read_floats(source, POSITION_ROWS) if config.has(POSITION_ROWS) else None


def bias_of(source: ModelSource, matrix: str) -> Floats | None:
    """The bias [N] that belongs to a matrix, by its name; None where it has none."""
    name = f"{matrix.removesuffix('.weight')}.bias"
    return read_floats(source, name) if name in source.tensors else None


def _present(source: ModelSource, config: ModelConfig, rows: Iterable[Row]) -> list[str]:
    """The names of the file's tensors that these rows of the shape table stand for."""
    layers = range(config.num_layers)
    names = (row.name.format(l=layer) for row in rows for layer in (layers if "{l}" in row.name else (0,)))
    return [name for name in names if name in source.tensors]


def matrices_of(source: ModelSource, config: ModelConfig) -> list[str]:
    """The tensors that are repacked into tiles, in the order of the file."""
    names = set(_present(source, config, (row for row in weights_of(config) if row.dtype == "blocks")))
    return [name for name in source.tensors if name in names]


def vectors_of(source: ModelSource, config: ModelConfig) -> list[str]:
    """Weights and biases of norms."""
    return _present(source, config, (row for row in weights_of(config) if "norm." in row.name))


def _fill(layout: TileFormat, tensor: Tensor, tiles: Any, first: int) -> None:
    """Repack as many of the matrix's rows as the tiles hold, from the first on, and give their pages back. Rows out of
    order are in memory twice for so long.
    """
    end = min(tensor.shape[0], first + len(tiles) * TILE_ROWS)
    repack(layout, tensor.rows(first, end), tiles)
    tensor.drop_pages(first, end)


class _Parts(NamedTuple):
    """What the file has: how its matrices are laid out, and its vectors."""

    formats: dict[str, TileFormat]  # of each matrix, in the order of the file
    biases: dict[str, Floats]  # of those matrices that have one
    vectors: dict[str, Floats]  # weights and biases of norms


class _Room:
    """The model's memory, taken at once: tiles, vectors, and zeros for matrices and norms that have no bias."""

    def __init__(self, source: ModelSource, parts: _Parts) -> None:
        widest = max(source.tensors[name].shape[0] for name in parts.formats) + TILE_ROWS
        sizes = [layout.size(*source.tensors[name].shape) for name, layout in parts.formats.items()]
        sizes += [4 * widest, *(4 * (len(bias) + TILE_ROWS) for bias in parts.biases.values())]
        sizes += [vector.nbytes for vector in parts.vectors.values()]
        self.arena = Arena(sum(map(aligned, sizes)))
        self.zeros = int(self.arena.take(4 * widest).ctypes.data)
        """Their address."""

    def place(self, vector: Floats, room: int) -> int:
        """The address of a copy, with zeros behind it up to ``room`` bytes."""
        copy = self.arena.take(room).view(np.float32)
        copy[: len(vector)] = vector
        return int(copy.ctypes.data)


def load_model(source: ModelSource, threads: int) -> LoadedModel:
    """Check and repack. Raises ModelFileError for anything that the forward can't run, CapacityError without enough
    memory.
    """
    config = read_config(source)
    check_tensors(source, config)
    matrices = matrices_of(source, config)
    parts = _Parts(
        {name: tile_format(source, source.tensors[name]) for name in matrices},
        {name: bias for name in matrices if (bias := bias_of(source, name)) is not None},
        {name: read_floats(source, name) for name in vectors_of(source, config)},
    )
    room = _Room(source, parts)
    weights = _repack_all(source, parts, room, threads)
    record = _assemble(source, config, parts, room, weights)
    return LoadedModel(config, record, room.arena, tuple(sorted({layout.name for layout in parts.formats.values()})))


def _repack_all(source: ModelSource, parts: _Parts, room: _Room, threads: int) -> dict[str, Any]:
    """Fill all tiles. Name of a matrix → its record."""
    weights: dict[str, Any] = {}
    jobs = []
    for name, layout in parts.formats.items():
        rows, columns = source.tensors[name].shape
        tiles = room.arena.take(layout.size(rows, columns)).reshape(-1, layout.tile_bytes(columns))
        bias = parts.biases.get(name)
        weights[name] = np.zeros((), WEIGHT)
        # Zeros behind a bias are for the rows of a last, partial tile.
        behind = room.zeros if bias is None else room.place(bias, 4 * (len(bias) + TILE_ROWS))
        weights[name][()] = layout.record(int(tiles.ctypes.data), behind, rows, columns)
        jobs += [
            (name, (layout, source.tensors[name], tiles[first : first + TILES_A_JOB], first * TILE_ROWS))
            for first in range(0, tiles.shape[0], TILES_A_JOB)
        ]
    with ThreadPoolExecutor(threads) as pool:
        repacked = [(name, pool.submit(_fill, *job)) for name, job in jobs]
        for (name, done), (following, _) in zip(repacked, [*repacked[1:], (None, None)], strict=True):
            done.result()
            if name != following:  # the last job of this matrix
                source.drop_pages(source.tensors[name])
    return weights


def _assemble(
    source: ModelSource, config: ModelConfig, parts: _Parts, room: _Room, weights: Mapping[str, Any]
) -> Model:
    """The records that the forward reads. weights: the matrices' own; a part of one is a record of some of its rows."""
    addresses = {name: room.place(vector, vector.nbytes) for name, vector in parts.vectors.items()}

    def part_of(name: str, part: Part) -> Any:
        """Some rows of a matrix, from the first of a tile on."""
        record = weights[f"{name}.weight"].copy()
        record["tiles"] += part.first // TILE_ROWS * record["tile_bytes"]
        record["bias"] += 4 * part.first if f"{name}.weight" in parts.biases else 0
        record["rows"] = part.rows
        return record[()]

    def norm(name: str | None) -> Any:
        weight, bias = addresses.get(f"{name}.weight", 0), addresses.get(f"{name}.bias", room.zeros)
        return np.array((weight, bias, config.norm_epsilon, config.layer_norm), NORM)[()]

    return assemble(
        config,
        part_of,
        norm,
        lambda items: np.array(items, items[0].dtype),
        position_rows_of(source, config),
        tied="output.weight" not in source.tensors,
    )
