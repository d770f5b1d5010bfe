"""From a file to a model that can run: weights checked against the shape table and repacked into tiles.

In: an open GGUF. Out: a ``LoadedModel``: the records that the forward reads, and the memory that they point into.
Source pages are given back to the system as they are repacked.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from cutaway.errors import ModelFileError
from cutaway.formats.blocks import dequantize
from cutaway.formats.gguf import GGUFFile, Tensor
from cutaway.model.config import ModelConfig, read_config
from cutaway.model.positions import inverse_frequencies
from cutaway.model.records import Model
from cutaway.model.shapes import LAYER_MATRICES, Limits, dimensions, weights_of
from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.memory import Arena, aligned
from cutaway.ops.cpu.tiles import TILE_FORMATS, WEIGHT, TileFormat, repack
from cutaway.ops.cpu.tiles.layout import TILE_ROWS

TILES_A_JOB = 256  # a repacking job's share of a large matrix


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory. ``arena`` holds its tiles; the records hold their addresses."""

    config: ModelConfig
    record: Model
    arena: Arena
    formats: tuple[str, ...]  # block formats among the matrices


def expected_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The tensors that a model of this config has, each with its shape. ``output.weight`` is optional."""
    sizes = dimensions(config, Limits(1, 1, 1, 1, 1))
    return {
        row.name.format(l=layer): row.size(sizes)
        for row in weights_of(config)
        for layer in (range(config.num_layers) if "{l}" in row.name else (0,))
    }


def check_tensors(gguf: GGUFFile, config: ModelConfig) -> None:
    """Every tensor must be there, with its shape, and none besides. Raises ModelFileError that lists what is wrong."""
    expected = expected_tensors(config)
    missing = [name for name in expected if name not in gguf.tensors and name != "output.weight"]
    if "rope_freqs.weight" in gguf.tensors:
        raise ModelFileError(
            f"{gguf.path}: the tensor 'rope_freqs.weight' scales rotary positions, which Cutaway does not compute yet. "
            "Use a model without it."
        )
    unknown = [name for name in gguf.tensors if name not in expected]
    wrong = [
        f"{name} is {list(gguf.tensors[name].shape)}, not {list(shape)}"
        for name, shape in expected.items()
        if name in gguf.tensors and gguf.tensors[name].shape != shape
    ]
    for title, names in (
        ("missing", missing),
        ("not used by this family", unknown),
        ("of the wrong shape", wrong),
    ):
        if names:
            shown = "; ".join(names[:5]) + (f"; and {len(names) - 5} more" if len(names) > 5 else "")
            raise ModelFileError(
                f"{gguf.path}: {len(names)} tensors are {title}: {shown}. The file is incomplete or of another family; "
                "fetch it again."
            )


def tile_format(gguf: GGUFFile, tensor: Tensor) -> TileFormat:
    """The tile format of a matrix. Raises ModelFileError for a block type without a kernel."""
    try:
        return TILE_FORMATS[tensor.block_type.name]
    except KeyError:
        raise ModelFileError(
            f"{gguf.path}: the matrix {tensor.name!r} has the block type {tensor.block_type.name}; there are kernels "
            f"for {', '.join(TILE_FORMATS)}. Use a file in one of these."
        ) from None


def read_vector(gguf: GGUFFile, name: str) -> Floats:
    """A norm's weight, or a matrix's bias, as float32. Raises ModelFileError for one in blocks."""
    tensor = gguf.tensors[name]
    if tensor.block_type.name not in ("F32", "F16", "BF16"):
        raise ModelFileError(
            f"{gguf.path}: the vector {name!r} has the block type {tensor.block_type.name}; "
            "it must be F32, F16 or BF16."
        )
    # A copy: read-only memory of the file would be another type to the compiled forward.
    return np.array(dequantize(tensor.block_type, tensor.data).reshape(-1))


def bias_of(gguf: GGUFFile, matrix: str) -> Floats | None:
    """The bias [N] that belongs to a matrix, by its name; None where it has none."""
    name = f"{matrix.removesuffix('.weight')}.bias"
    return read_vector(gguf, name) if name in gguf.tensors else None


def load_model(gguf: GGUFFile, threads: int) -> LoadedModel:
    """Check and repack. Raises ModelFileError for anything that the forward can't run, CapacityError without enough
    memory.
    """
    config = read_config(gguf)
    check_tensors(gguf, config)
    matrices = [name for name, tensor in gguf.tensors.items() if len(tensor.shape) == 2]
    formats = {name: tile_format(gguf, gguf.tensors[name]) for name in matrices}
    biases = {name: bias for name in matrices if (bias := bias_of(gguf, name)) is not None}
    widest = max(gguf.tensors[name].shape[0] for name in matrices) + TILE_ROWS
    sizes = {name: formats[name].size(*gguf.tensors[name].shape) for name in matrices}
    bias_sizes = [4 * widest] + [4 * (len(bias) + TILE_ROWS) for bias in biases.values()]
    arena = Arena(sum(aligned(size) for size in (*sizes.values(), *bias_sizes)))
    no_bias = int(arena.take(4 * widest).ctypes.data)

    def place_bias(name: str) -> int:
        """The address of a matrix's bias, with zeros behind it for the rows of a last, partial tile."""
        if name not in biases:
            return no_bias
        room = arena.take(4 * (len(biases[name]) + TILE_ROWS)).view(np.float32)
        room[: len(biases[name])] = biases[name]
        return int(room.ctypes.data)

    weights = np.zeros(len(matrices), WEIGHT)
    jobs = []
    for index, name in enumerate(matrices):
        tensor, layout = gguf.tensors[name], formats[name]
        rows, columns = tensor.shape
        tiles = arena.take(sizes[name]).reshape(-1, layout.tile_bytes(columns))
        weights[index] = (
            int(tiles.ctypes.data),
            place_bias(name),
            layout.multiply_one.address,
            layout.multiply_many.address,
            layout.decode_row.address,
            rows,
            columns,
            tiles.shape[1],
        )
        jobs += [
            (name, (layout, tensor.data, tiles, first, min(tiles.shape[0], first + TILES_A_JOB)))
            for first in range(0, tiles.shape[0], TILES_A_JOB)
        ]
    with ThreadPoolExecutor(threads) as pool:
        repacked = [(name, pool.submit(repack, *job)) for name, job in jobs]
        for (name, done), (following, _) in zip(repacked, [*repacked[1:], (None, None)], strict=True):
            done.result()
            if name != following:  # the last job of this matrix
                gguf.drop_pages(gguf.tensors[name])

    where = {name: index for index, name in enumerate(matrices)}
    layers = np.array(
        [[where[f"blk.{l}.{matrix}.weight"] for matrix in LAYER_MATRICES] for l in range(config.num_layers)]
    )
    embedding = where["token_embd.weight"]
    head = where.get("output.weight", embedding)
    record = Model(
        embedding=weights[embedding : embedding + 1].copy(),
        layers=weights[layers],
        attention_norm=np.stack([read_vector(gguf, f"blk.{l}.attn_norm.weight") for l in range(config.num_layers)]),
        ffn_norm=np.stack([read_vector(gguf, f"blk.{l}.ffn_norm.weight") for l in range(config.num_layers)]),
        output_norm=read_vector(gguf, "output_norm.weight"),
        head=weights[head : head + 1].copy(),
        inverse_frequencies=inverse_frequencies(config.rope_base, config.head_dim),
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        norm_epsilon=np.float32(config.norm_epsilon),
        rope_interleaved=config.rope_interleaved,
    )
    return LoadedModel(config, record, arena, tuple(sorted({layout.name for layout in formats.values()})))
