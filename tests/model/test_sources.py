"""The same model as a GGUF, a GGUF in parts, safetensors and shards: the same logits, bit by bit."""

from pathlib import Path
from typing import Any

import gguf as gguf_package
import numpy as np
import pytest

from cutaway.errors import ModelFileError
from cutaway.formats.open_model import open_model
from cutaway.model.loader import load_model, memory_bytes
from cutaway.model.reference import load_reference
from support.bits import differing
from support.hf_folders import hf_config, hf_tensors, write_folder
from support.rig import Logits, Part, run_reference, run_schedule
from support.tiny_llama import TinySizes, tiny_metadata, tiny_tensors, write_gguf

SIZES = TinySizes(num_layers=2, width=32 * 3, num_heads=4, num_kv_heads=2, head_dim=32, ffn_width=32 * 5)
IDS = [(5 * i * i + 3) % SIZES.vocab_size for i in range(37)]
STEP = [Part(0, 0, len(IDS))]


def logits_of(path: Path) -> Logits:
    with open_model(path) as source:
        loaded = load_model(source, threads=2)
    return run_schedule(loaded, [IDS], [STEP])


def assert_same(left: Logits, right: Logits) -> None:
    assert set(left) == set(right)
    assert sum(differing(left[place], right[place]) for place in left) == 0


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("type_name", ["F32", "F16", "BF16"])
def test_gguf_and_safetensors_give_the_same_bits(
    tmp_path: Path, type_name: str, shards: int, architecture: str
) -> None:
    """4 heads over 2 KV heads: GGUF has a llama's Q and K rows in another order."""
    tensors = tiny_tensors(SIZES, (type_name,), tied=shards > 1, architecture=architecture)
    path = write_gguf(tmp_path / "tiny.gguf", tiny_metadata(SIZES, architecture), tensors)
    config = hf_config(SIZES, architecture, tied=shards > 1)
    folder = write_folder(tmp_path / "tiny", config, hf_tensors(SIZES, tensors, architecture), shards)
    assert_same(logits_of(folder), logits_of(path))


def test_the_reference_reads_the_same_numbers(tmp_path: Path) -> None:
    tensors = tiny_tensors(SIZES, ("BF16",), tied=False)
    path = write_gguf(tmp_path / "tiny.gguf", tiny_metadata(SIZES), tensors)
    folder = write_folder(tmp_path / "tiny", hf_config(SIZES), hf_tensors(SIZES, tensors), shards=2)
    results = []
    for each in (path, folder):
        with open_model(each) as source:
            results.append(run_reference(*load_reference(source), [IDS], [STEP]))
    left, right = results
    for place in left:  # a GGUF has rounded the norms' epsilon to float32
        np.testing.assert_allclose(left[place], right[place], rtol=1e-6, atol=1e-6)


def test_the_order_of_rows_matters(tmp_path: Path) -> None:
    """The control: a llama written in GGUF's order of rows gives other logits."""
    tensors = tiny_tensors(SIZES, ("F32",), tied=False)
    right = write_folder(tmp_path / "right", hf_config(SIZES), hf_tensors(SIZES, tensors))
    wrong = write_folder(tmp_path / "wrong", hf_config(SIZES), hf_tensors(SIZES, tensors, architecture="as it is"))
    left, other = logits_of(right), logits_of(wrong)
    assert all(differing(left[place], other[place]) for place in left if place[1] > 0)


def test_a_model_in_parts_is_the_model(tmp_path: Path) -> None:
    """Written whole, and in parts by the ``gguf`` package; named by its first part and by its last."""
    tensors = tiny_tensors(SIZES, ("Q8_0",), tied=False)
    whole = write_gguf(tmp_path / "tiny.gguf", tiny_metadata(SIZES), tensors)
    parts = write_parts(tmp_path, tensors, per_part=8)
    assert len(parts) == 3
    expected = logits_of(whole)
    assert_same(logits_of(parts[0]), expected)
    assert_same(logits_of(parts[-1]), expected)


def write_parts(folder: Path, tensors: Any, per_part: int) -> list[Path]:
    writer = gguf_package.GGUFWriter(folder / "parts.gguf", "llama", split_max_tensors=per_part)
    for key, value in tiny_metadata(SIZES).items():
        if isinstance(value, str) and key != "general.architecture":
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
    for name, (array, type_name) in tensors.items():
        writer.add_tensor(name, array, raw_dtype=gguf_package.GGMLQuantizationType[type_name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob("parts-*.gguf"))


def test_missing_tensors_are_listed_by_both_names(tmp_path: Path) -> None:
    tensors = tiny_tensors(SIZES, ("F16",), tied=False)
    stored = hf_tensors(SIZES, tensors)
    del stored["model.layers.1.self_attn.k_proj.weight"], stored["model.norm.weight"]
    stored["model.layers.0.self_attn.q_proj.bias"] = (np.zeros(512, np.uint8), "F32", [128])
    folder = write_folder(tmp_path / "tiny", hf_config(SIZES), stored)
    with open_model(folder) as source, pytest.raises(ModelFileError) as error:
        load_model(source, threads=1)
    message = str(error.value)
    assert "2 tensors are missing" in message
    assert "blk.1.attn_k.weight (model.layers.1.self_attn.k_proj.weight)" in message
    assert "output_norm.weight (model.norm.weight)" in message


@pytest.mark.parametrize("name", ["model.layers.2.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.lora_A.weight"])
def test_tensors_that_are_not_used_are_listed(tmp_path: Path, name: str) -> None:
    stored = hf_tensors(SIZES, tiny_tensors(SIZES, ("F16",), tied=False))
    stored[name] = (np.zeros(64, np.uint8), "F16", [1, 32])
    folder = write_folder(tmp_path / "tiny", hf_config(SIZES), stored)
    with (
        open_model(folder) as source,
        pytest.raises(ModelFileError, match="1 tensors are not used by this family") as error,
    ):
        load_model(source, threads=1)
    assert name in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("hidden_size", None, r"embedding_length' \(hidden_size in config\.json\) is missing"),
        ("intermediate_size", 172, "the feed-forward width 172 is no multiple of 32"),
        ("hidden_size", 4544 + 16, "the width 4560 is no multiple of 32"),
        ("num_hidden_layers", 10**9, "the number of layers is 1000000000; the files have 21 tensors"),
        ("num_hidden_layers", "2", "num_hidden_layers is '2'; it must be int"),
        ("num_hidden_layers", True, "num_hidden_layers is 'True'; it must be int"),
        ("num_attention_heads", 3, "'blk.0.attn_q.weight' has 128 rows; '3' heads need"),
        ("rms_norm_eps", "1e-5", "rms_norm_eps is '1e-5'; it must be float"),
        ("rope_scaling", {"type": "foo", "factor": 2.0}, "'foo'"),
        ("rope_scaling", {"type": "longrope", "long_factor": [1.0]}, "long_factor of rotary positions .* is a list"),
        ("hidden_act", "gelu", "hidden_act is 'gelu'; Cutaway computes llama with silu"),
        ("mlp_bias", True, "mlp_bias is 'True'; Cutaway computes llama with False"),
    ],
)
def test_a_config_that_cannot_be_run_is_refused(tmp_path: Path, key: str, value: Any, message: str) -> None:
    config = {**hf_config(SIZES), key: value}
    stored = hf_tensors(SIZES, tiny_tensors(SIZES, ("F16",), tied=False))
    folder = write_folder(tmp_path / "tiny", config, stored)
    with pytest.raises(ModelFileError, match=message), open_model(folder) as source:
        load_model(source, threads=1)


@pytest.mark.parametrize("type_name", ["F32", "BF16", "Q8_0", "Q3_K"])
def test_memory_is_what_loading_takes(tmp_path: Path, type_name: str) -> None:
    sizes = SIZES._replace(width=256, head_dim=64, ffn_width=256)
    path = write_gguf(tmp_path / "tiny.gguf", tiny_metadata(sizes), tiny_tensors(sizes, (type_name,), tied=False))
    with open_model(path) as source:
        matrices = [tensor for tensor in source.tensors.values() if len(tensor.shape) == 2]
        assert {tensor.block_type.name for tensor in matrices} == {type_name}
        loaded = load_model(source, threads=1)
        used = loaded.arena.used - 4 * (sizes.vocab_size + 16)  # the zeros that stand for no bias
        assert used >= sum(map(memory_bytes, matrices))
        assert used <= sum(memory_bytes(tensor) + 64 for tensor in source.tensors.values()) + 64


@pytest.mark.parametrize("type_name", ["F32", "F16"])
def test_memory_of_learned_positions_is_what_loading_takes(tmp_path: Path, type_name: str) -> None:
    """Rows of positions are added as float32; they are no matrix of tiles, which pads its rows to whole ones."""
    sizes = SIZES._replace(num_heads=3, num_kv_heads=3, context_length=77)
    tensors = tiny_tensors(sizes, ("Q8_0",), architecture="gpt2")
    table = tensors["position_embd.weight"][0].astype("<f4" if type_name == "F32" else "<f2")
    tensors["position_embd.weight"] = (table, type_name)
    path = write_gguf(tmp_path / "tiny.gguf", tiny_metadata(sizes, "gpt2"), tensors)
    with open_model(path) as source:
        used = load_model(source, threads=1).record.position_rows.nbytes
        assert used == memory_bytes(source.tensors["position_embd.weight"]) == 4 * 77 * 96
