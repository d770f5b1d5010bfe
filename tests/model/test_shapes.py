"""The shape table against what runs: the workspace, every tap of an open run, the file's tensors, the bytes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.formats.gguf import GGUFFile, open_gguf
from cutaway.memory.kv_cache import KVPool, allocate_kv_pool, kv_format, position_bytes
from cutaway.memory.workspace import allocate_workspace
from cutaway.model.batch import Piece, make_batch
from cutaway.model.config import read_config
from cutaway.model.forward import rebind
from cutaway.model.loader import LoadedModel, expected_tensors, load_model
from cutaway.model.records import Workspace
from cutaway.model.shapes import (
    BUFFERS,
    DIMENSIONS,
    LAYER_TAPS,
    OPTIONAL,
    TAPS,
    WEIGHTS,
    Limits,
    dimensions,
    evaluate,
    kv_rows,
)
from cutaway.ops.cpu.kv_tiles import KV_FORMATS
from cutaway.ops.cpu.memory import aligned
from cutaway.ops.cpu.tiles.layout import TILE_ROWS
from support.rig import Pages, Part, run_schedule
from support.teams import run
from support.tiny_llama import TinySizes, write_tiny_llama


def flat(work: Workspace) -> dict[str, Any]:
    """Buffers by the table's names."""
    buffers: dict[str, Any] = {}
    for field, value in work._asdict().items():
        if isinstance(value, tuple):
            buffers |= {f"{field}.{inner}": array for inner, array in value._asdict().items()}
        else:
            buffers[field] = value
    return buffers


@given(st.dictionaries(st.sampled_from(sorted(DIMENSIONS)), st.integers(1, 9999), min_size=len(DIMENSIONS)))
def test_symbols_evaluate_as_arithmetic_does(values: dict[str, int]) -> None:
    values["K"] *= 32
    values["R"] *= 2
    tables = (WEIGHTS, *map(kv_rows, KV_FORMATS.values()), BUFFERS)
    rows = [row.shape for table in tables for row in table] + list(TAPS.values())
    for entry in {entry for shape in rows for entry in shape}:
        expected = eval(entry.replace("·", "*").replace("/", "//"), {}, values)
        assert evaluate(entry, values) == expected


def test_an_unknown_symbol_is_an_error() -> None:
    with pytest.raises(KeyError, match="X"):
        evaluate("2·X", {"D": 3})


@pytest.mark.parametrize("float_type", [np.float32, np.float64])
def test_the_workspace_is_the_table(smollm2: LoadedModel, float_type: Any) -> None:
    sizes = dimensions(smollm2.config, Limits(29, 5, 3, 700, 64))
    buffers = flat(allocate_workspace(sizes, float_type))
    assert set(buffers) == {row.name for row in BUFFERS}
    for row in BUFFERS:
        array = buffers[row.name]
        assert array.shape == row.size(sizes), row.name
        assert array.dtype == (row.dtype if float_type is np.float32 else float_type), row.name
        assert array.strides[-1] == array.itemsize
        assert not array.any()
    if float_type is np.float32:
        total = sum(row.nbytes(sizes) for row in BUFFERS)
        assert total == sum(array.nbytes for array in buffers.values())


def test_rows_of_logits_have_room_for_a_last_tile(tmp_path: Path) -> None:
    with open_gguf(write_tiny_llama(tmp_path / "tiny.gguf")) as gguf:
        config = read_config(gguf)
    assert config.vocab_size % TILE_ROWS == 3
    work = allocate_workspace(dimensions(config, Limits(7, 5, 1, 64, 4)))
    assert work.logits.shape == (5, config.vocab_size + TILE_ROWS - 3)
    assert work.logits.flags.c_contiguous  # as with any other vocabulary: another layout would compile another forward


def test_every_tap_shows_what_the_table_says(smollm2: LoadedModel) -> None:
    """In an open run over a ragged batch; T is the step's, but for the quantised inputs, shown as whole buffers."""
    seen: dict[str, set[tuple[int, ...]]] = {}
    spare: list[int] = []

    def look(team: Any, name: str, layer: int, array: Any) -> None:
        assert (layer == -1) == (name not in LAYER_TAPS)
        seen.setdefault(name, set()).add(array.shape)

    def remember(pool: KVPool, work: Workspace) -> None:
        spare.append(len(work.x))

    sequences = [list(range(1, 20)), list(range(5, 12))]
    step = [Part(0, 0, 19), Part(1, 0, 7)]
    run_schedule(smollm2, sequences, [step], forward=rebind({"tap": look}), before_step=remember)
    sizes = dimensions(smollm2.config, Limits(26, 26, 1, 19, 1))
    whole = sizes | {"T": spare[0]}
    assert whole["T"] != sizes["T"]
    expected = {
        name: {tuple(evaluate(entry, whole if name.endswith("_input") else sizes) for entry in shape)}
        for name, shape in TAPS.items()
    }
    assert seen == expected


def test_taps_of_fewer_outputs_than_tokens(smollm2: LoadedModel) -> None:
    """Only the last token's logits: O is 1 where T is 3."""
    shapes: dict[str, tuple[int, ...]] = {}
    forward = rebind({"tap": lambda team, name, layer, array: shapes.setdefault(name, array.shape)})
    pool = allocate_kv_pool(smollm2.config, 1, 16)
    work = allocate_workspace(dimensions(smollm2.config, Limits(3, 2, 1, 16, 1)))
    run(forward, smollm2.record, make_batch([Piece(0, [1, 2, 3], [0])]), pool.record, work)
    sizes = dimensions(smollm2.config, Limits(3, 1, 1, 16, 1))
    for name in ("take_rows", "output_norm", "logits"):
        assert shapes[name] == tuple(evaluate(entry, sizes) for entry in TAPS[name])


def test_the_table_names_the_files_tensors(smollm2_gguf: GGUFFile) -> None:
    expected = expected_tensors(read_config(smollm2_gguf))
    actual = {name: tensor.shape for name, tensor in smollm2_gguf.tensors.items()}
    assert actual == {name: shape for name, shape in expected.items() if name not in OPTIONAL}


def test_the_table_names_the_biases_of_a_family(tmp_path: Path) -> None:
    for architecture, biases in (("llama", 0), ("qwen2", 3 * TinySizes().num_layers)):
        path = write_tiny_llama(tmp_path / f"{architecture}.gguf", tied=False, architecture=architecture)
        with open_gguf(path) as gguf:
            expected = expected_tensors(read_config(gguf))
            expected.pop("rope_freqs.weight", None)
            assert expected == {name: tensor.shape for name, tensor in gguf.tensors.items()}
        assert sum(name.endswith(".bias") for name in expected) == biases


def test_bytes_of_weights_add_up(smollm2: LoadedModel, smollm2_gguf: GGUFFile) -> None:
    """Tiles take what the file's blocks take: no matrix of this model has a partial tile, and norms are float32."""
    matrices = [tensor for tensor in smollm2_gguf.tensors.values() if len(tensor.shape) == 2]
    norms = [tensor for tensor in smollm2_gguf.tensors.values() if len(tensor.shape) == 1]
    assert all(tensor.nbytes == aligned(tensor.nbytes) for tensor in norms)
    assert all(tensor.shape[0] % TILE_ROWS == 0 for tensor in matrices)
    bias = aligned(4 * (max(tensor.shape[0] for tensor in matrices) + TILE_ROWS))
    assert smollm2.arena.used == smollm2.arena.size == sum(t.nbytes for t in (*matrices, *norms)) + bias


@pytest.mark.parametrize("data_type", KV_FORMATS)
@pytest.mark.parametrize("page_length", [16, 48])
def test_bytes_of_the_cache_add_up(smollm2: LoadedModel, page_length: int, data_type: str) -> None:
    pool = allocate_kv_pool(smollm2.config, 5, page_length, data_type)
    sizes = dimensions(smollm2.config, Limits(1, 1, 1, 16, 5 * page_length // 16))
    rows = {row.name: (row.size(sizes), row.dtype) for row in kv_rows(kv_format(data_type))}
    arrays = {"keys": pool.keys, "key_scales": pool.key_scales}
    arrays |= {"values": pool.values, "value_scales": pool.value_scales}
    assert rows == {f"kv.{name}": (array.shape, str(array.dtype)) for name, array in arrays.items() if array.size}
    assert pool.nbytes == sum(row.nbytes(sizes) for row in kv_rows(kv_format(data_type)))
    number, scale = {"f16": (2, 0), "f32": (4, 0), "int8": (1, 4)}[data_type]
    assert pool.position_bytes == 2 * 30 * 3 * (64 * number + scale)
    assert position_bytes(smollm2.config, data_type) == pool.position_bytes


def test_a_tiny_model_follows_the_table_too(tmp_path: Path) -> None:
    """Sizes that are no multiples of a tile, a group of 5 heads: every tap of an open run."""
    sizes = TinySizes(num_heads=10, num_kv_heads=2, head_dim=16)
    with open_gguf(write_tiny_llama(tmp_path / "tiny.gguf", sizes, formats=("Q4_0", "Q8_0"), tied=False)) as gguf:
        loaded = load_model(gguf, threads=1)
    shapes: dict[str, tuple[int, ...]] = {}
    forward = rebind({"tap": lambda team, name, layer, array: shapes.setdefault(name, array.shape)})
    run_schedule(loaded, [[1, 2, 3, 4, 5]], [[Part(0, 0, 5)]], forward=forward, pages=Pages(48))
    expected = dimensions(loaded.config, Limits(5, 5, 1, 5, 1))
    assert set(shapes) == set(TAPS)
    for name, shape in shapes.items():
        if not name.endswith("_input"):
            assert shape == tuple(evaluate(entry, expected) for entry in TAPS[name]), name
