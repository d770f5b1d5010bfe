"""Hugging Face folders: which tensors and metadata they give, and what is refused, listing what is wrong."""

import json
import math
import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from cutaway.errors import ModelFileError
from cutaway.formats.blocks import dequantize
from cutaway.formats.hf_families import HF_FAMILIES
from cutaway.formats.hf_folder import open_hf_folder
from cutaway.formats.open_model import open_model
from support.hf_folders import Stored, hf_config, hf_tensors, safetensors, write_folder
from support.tiny_llama import TinySizes, tiny_tensors

SIZES = TinySizes(num_layers=1, width=32, num_heads=4, num_kv_heads=2, head_dim=16, ffn_width=32, vocab_size=48)
CONFIG = hf_config(SIZES)


def stored(tied: bool = False) -> Stored:
    return hf_tensors(SIZES, tiny_tensors(SIZES, ("F16",), tied=tied))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound folder of two shards."""
    return write_folder(tmp_path / "tiny", CONFIG, stored(), shards=2)


def refused(path: Path) -> str:
    with pytest.raises(ModelFileError) as error:
        open_model(path)
    message = str(error.value)
    assert message.startswith(str(path))
    assert message.endswith(".")
    return message


# Names and orders


ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "smollm3": gguf.MODEL_ARCH.SMOLLM3,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "gpt2": gguf.MODEL_ARCH.GPT2,
}


@pytest.mark.parametrize("model_type", HF_FAMILIES)
def test_names_are_those_of_the_gguf_package(model_type: str) -> None:
    family, architecture = HF_FAMILIES[model_type], ARCHITECTURES[model_type]
    assert gguf.MODEL_ARCH_NAMES[architecture] == family.architecture
    names = gguf.get_tensor_name_map(architecture, 3)
    for theirs, ours in family.tensors.items():
        assert names.get_name((family.prefix + theirs).format(l=2)) == ours.format(l=2)
    assert names.get_name("lm_head") in ("output", None)


def test_rows_of_pairs_become_neighbours(folder: Path) -> None:
    """By the formula of llama.cpp's converter."""
    with open_hf_folder(folder) as source:
        for name, heads in (("attn_q", 4), ("attn_k", 2)):
            raw, _, shape = stored()[f"model.layers.0.self_attn.{name[-1]}_proj.weight"]
            values = raw.view("<f2").reshape(shape).astype(np.float32)
            expected = values.reshape(heads, 2, shape[0] // heads // 2, shape[1]).swapaxes(1, 2).reshape(shape)
            tensor = source.tensors[f"blk.0.{name}.weight"]
            assert np.array_equal(dequantize(tensor.block_type, tensor.data), expected)
            part = tensor.rows(3, 19)
            assert part.flags.c_contiguous
            assert np.array_equal(dequantize(tensor.block_type, part), expected[3:19])


GPT2 = {"model_type": "gpt2", "n_positions": 64, "n_layer": 1, "n_embd": 32, "n_head": 2, "layer_norm_epsilon": 1e-5}


@pytest.mark.parametrize("prefix", ["transformer.", ""])
def test_columns_first_becomes_rows_first(tmp_path: Path, prefix: str) -> None:
    values = np.arange(32 * 96, dtype="<f4").reshape(32, 96)
    raw = np.ascontiguousarray(values).view(np.uint8)
    embedding = np.zeros((5, 128), np.uint8)
    tensors: Stored = {
        f"{prefix}h.0.attn.c_attn.weight": (raw, "F32", [32, 96]),
        f"{prefix}h.0.attn.bias": (np.zeros(4, np.uint8), "F32", [1]),
        f"{prefix}wte.weight": (embedding, "F32", [5, 32]),
    }
    with open_hf_folder(write_folder(tmp_path / "gpt2", GPT2, tensors)) as source:
        assert set(source.tensors) == {"blk.0.attn_qkv.weight", "token_embd.weight"}
        tensor = source.tensors["blk.0.attn_qkv.weight"]
        assert tensor.shape == (96, 32)
        assert np.array_equal(dequantize(tensor.block_type, tensor.data), values.T)
        assert np.array_equal(dequantize(tensor.block_type, tensor.rows(7, 20)), values.T[7:20])
        assert source.metadata["gpt2.feed_forward_length"] == 128
        assert source.metadata["gpt2.attention.layer_norm_epsilon"] == 1e-5


def test_norms_stored_less_one_become_whole(tmp_path: Path) -> None:
    config = {**CONFIG, "model_type": "gemma2", "hidden_act": None, "hidden_activation": "gelu_pytorch_tanh"}
    tensors = stored(tied=True)
    norm = np.array([0x3F80, 0xBF00] * 16, "<u2")  # 1 and -0.5 in bfloat16
    tensors["model.norm.weight"] = (norm.view(np.uint8), "BF16", [32])
    with open_hf_folder(write_folder(tmp_path / "gemma", {**config, "tie_word_embeddings": True}, tensors)) as source:
        tensor = source.tensors["output_norm.weight"]
        assert tensor.block_type.name == "F32"
        assert np.array_equal(dequantize(tensor.block_type, tensor.data), [2.0, 0.5] * 16)
        tensor.drop_pages()


# The config


def metadata_of(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    path = write_folder(tmp_path / "tiny", {**CONFIG, **changes}, stored())
    with open_hf_folder(path) as source:
        return dict(source.metadata)


def test_the_config_in_ggufs_keys(tmp_path: Path) -> None:
    metadata = metadata_of(tmp_path)
    assert {key: value for key, value in metadata.items() if not key.startswith("tokenizer.")} == {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.context_length": 1024,
        "llama.block_count": 1,
        "llama.embedding_length": 32,
        "llama.feed_forward_length": 32,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.key_length": 16,
        "llama.attention.value_length": 16,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10_000.0,
    }


LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
LLAMA3_KEYS = {
    "type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_context_length": 8192,
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rope_theta": None}, {"llama.rope.freq_base": 10_000.0}),
        ({"rope_theta": 500_000}, {"llama.rope.freq_base": 500_000.0}),
        (
            {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 7.0}},
            {"llama.rope.freq_base": 7.0},
        ),
        ({"rope_scaling": None}, {"llama.rope.scaling.type": None}),
        ({"rope_scaling": LLAMA3}, {f"llama.rope.scaling.{key}": value for key, value in LLAMA3_KEYS.items()}),
        (
            {"rope_parameters": {**LLAMA3, "rope_theta": 5e5}},
            {f"llama.rope.scaling.{key}": value for key, value in LLAMA3_KEYS.items()} | {"llama.rope.freq_base": 5e5},
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 2}},
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0},
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 32, "attention_factor": 1.2}},
            {"llama.rope.scaling.yarn_beta_fast": 32.0, "llama.rope.scaling.attention_factor": 1.2},
        ),
        ({"model_type": "phi3", "partial_rotary_factor": 0.5}, {"phi3.rope.dimension_count": 8}),
        ({"partial_rotary_factor": 1.0}, {"llama.rope.dimension_count": None}),
        ({"model_type": "mistral", "sliding_window": 4096}, {"llama.attention.sliding_window": 4096}),
        ({"model_type": "mistral", "sliding_window": None}, {"llama.attention.sliding_window": None}),
        ({"model_type": "mistral"}, {"llama.attention.sliding_window": 4096}),
        *(
            (
                {"model_type": model_type, "hidden_act": None, "tie_word_embeddings": False},
                {f"{architecture}.attention.sliding_window": 4096},
            )
            for model_type, architecture in (("gemma2", "gemma2"), ("gemma3_text", "gemma3"))
        ),
        ({}, {"llama.attention.sliding_window": None}),
        ({"sliding_window": 4096}, {"llama.attention.sliding_window": None}),
        (
            {"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False},
            {"qwen2.attention.sliding_window": None},
        ),
        ({"model_type": "qwen2", "sliding_window": 4096}, {"qwen2.attention.sliding_window": None}),
        ({"model_type": "qwen3", "sliding_window": 4096}, {"qwen3.attention.sliding_window": None}),
        ({"model_type": "smollm3", "sliding_window": 4096}, {"smollm3.attention.sliding_window": None}),
        (
            {"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True},
            {"qwen2.attention.sliding_window": 4096},
        ),
        ({"head_dim": None}, {"llama.attention.key_length": None, "llama.attention.value_length": None}),
    ],
)
def test_positions_and_windows(tmp_path: Path, changes: dict[str, Any], expected: dict[str, Any]) -> None:
    metadata = metadata_of(tmp_path, **changes)
    assert {key: metadata.get(key) for key in expected} == expected
    assert {key: type(metadata.get(key)) for key in expected} == {key: type(value) for key, value in expected.items()}


GEMMA = {"model_type": "gemma3_text", "hidden_act": None, "sliding_window": 512, "query_pre_attn_scalar": 64}


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 1e6, "rope_local_base_freq": 2e4},
        {
            "rope_theta": None,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
            },
        },
    ],
    ids=["old", "new"],
)
def test_layers_with_a_window_have_a_base_of_their_own(tmp_path: Path, rope: dict[str, Any]) -> None:
    layers = {"layer_types": ["sliding_attention"]}
    config = {**CONFIG, **GEMMA, **rope, **layers, "tie_word_embeddings": True, "final_logit_softcapping": None}
    with open_hf_folder(write_folder(tmp_path / "g", config, stored(tied=True))) as source:
        metadata = source.metadata
    assert metadata["gemma3.rope.freq_base"] == 1e6
    assert metadata["gemma3.rope.freq_base_swa"] == 2e4
    assert metadata["gemma3.attention.sliding_window"] == 512
    assert np.array_equal(metadata["gemma3.attention.sliding_window_pattern"], [True])
    assert metadata["gemma3.attention.scale"] == 0.125
    assert metadata["gemma3.final_logit_softcapping"] == 0.0


@pytest.mark.parametrize("key", ["sliding_window_pattern", "_sliding_window_pattern"])
def test_which_layers_attend_a_window_may_be_said_by_a_number(tmp_path: Path, key: str) -> None:
    config = {**CONFIG, **GEMMA, key: 3, "tie_word_embeddings": True}
    with open_hf_folder(write_folder(tmp_path / "g", config, stored(tied=True))) as source:
        assert source.metadata["gemma3.attention.sliding_window_pattern"] == 3


def test_layers_without_rotary_positions_may_be_listed_where_they_are_the_known_ones(tmp_path: Path) -> None:
    layers = {"num_hidden_layers": 5, "no_rope_layers": [1, 1, 1, 0, 1]}
    metadata = metadata_of(tmp_path, model_type="smollm3", **layers)
    assert metadata["smollm3.block_count"] == 5


def test_as_many_heads_of_keys_as_of_queries_where_the_config_says_null(tmp_path: Path) -> None:
    """As where it says nothing: four, by which the rows of queries and keys are put in order."""
    orders = []
    for name, changes in (("null", {"num_key_value_heads": None}), ("four", {"num_key_value_heads": 4})):
        with open_hf_folder(write_folder(tmp_path / name, {**CONFIG, **changes}, stored())) as source:
            orders.append(source.tensors["blk.0.attn_k.weight"].order)
    assert orders[0] is not None
    assert np.array_equal(*orders)


# Heads, tied and not


def test_tied_without_a_head(tmp_path: Path) -> None:
    path = write_folder(tmp_path / "a", {**CONFIG, "tie_word_embeddings": True}, stored(tied=True))
    with open_hf_folder(path) as source:
        assert "output.weight" not in source.tensors


def test_tied_with_a_head_that_is_the_embedding(tmp_path: Path) -> None:
    tensors = stored(tied=True)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    path = write_folder(tmp_path / "a", {**CONFIG, "tie_word_embeddings": True}, tensors)
    with open_hf_folder(path) as source:
        assert "output.weight" not in source.tensors


@pytest.mark.parametrize("change", ["value", "shape"])
def test_tied_with_another_head(tmp_path: Path, change: str) -> None:
    raw, type_name, shape = stored()["model.embed_tokens.weight"]
    raw = raw.copy()
    raw[17, 3] ^= 1
    head = (raw, type_name, shape) if change == "value" else (raw[:-1], type_name, [shape[0] - 1, shape[1]])
    tensors = {**stored(), "lm_head.weight": head}
    path = write_folder(tmp_path / "a", {**CONFIG, "tie_word_embeddings": True}, tensors)
    assert "tie_word_embeddings is true, but lm_head.weight differs from the embedding" in refused(path)


@pytest.mark.parametrize("said", [True, False])
def test_not_tied_without_a_head(tmp_path: Path, said: bool) -> None:
    config = {**CONFIG}
    if not said:
        del config["tie_word_embeddings"]  # a llama's default
    path = write_folder(tmp_path / "a", config, stored(tied=True))
    assert "the head (lm_head.weight) is missing, and tie_word_embeddings is false" in refused(path)


def test_not_tied_with_a_head(folder: Path) -> None:
    with open_hf_folder(folder) as source:
        assert "output.weight" in source.tensors


# Files


def index_of(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "model.safetensors.index.json").read_text())
    return loaded


def change_index(folder: Path, change: Callable[[dict[str, str]], object]) -> None:
    index = index_of(folder)
    change(index["weight_map"])
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


SECOND = "model-00002-of-00002.safetensors"
NORM = "model.norm.weight"
EMBEDDING = "model.embed_tokens.weight"


def directory(folder: Path) -> None:
    (folder / SECOND).unlink()
    (folder / SECOND).mkdir()


def replaced_by_pickles(folder: Path) -> None:
    for each in folder.glob("*.safetensors*"):
        each.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02")


def with_one_more(folder: Path) -> None:
    """The second shard has, besides its own, the embedding, which is the first's."""
    files, tensors = index_of(folder)["weight_map"], stored()
    assert files[EMBEDDING] != SECOND
    own = [name for name, file in files.items() if file == SECOND]
    (folder / SECOND).write_bytes(safetensors({name: tensors[name] for name in [*own, EMBEDDING]}))


def without_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").unlink()


def only(*names: str) -> Callable[[Path], None]:
    def keep(folder: Path) -> None:
        for each in folder.glob("*.safetensors*"):
            each.unlink()
        for name in names:
            (folder / name).write_bytes(b"")

    return keep


BROKEN: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "a shard is missing": (
        lambda folder: (folder / SECOND).unlink(),
        [f"1 of 2 files are missing: {SECOND}. Fetch them again"],
    ),
    "a shard is a directory": (directory, [f"1 of 2 files are missing: {SECOND}"]),
    "a shard is damaged": (
        lambda folder: (folder / SECOND).write_bytes((folder / SECOND).read_bytes()[:-1]),
        [SECOND, "The file is truncated"],
    ),
    "the index names what a shard lacks": (
        lambda folder: change_index(folder, lambda files: files.update({"model.more.weight": SECOND})),
        ["1 tensors that the index names are not there: 'model.more.weight' in " + SECOND],
    ),
    "a shard has what the index lacks": (
        lambda folder: change_index(folder, lambda files: files.pop(NORM)),
        [f"1 tensors are not in the index: '{NORM}' in "],
    ),
    "the index names the other shard": (
        lambda folder: change_index(
            folder, lambda files: files.update({name: SECOND for name in files if name == "model.embed_tokens.weight"})
        ),
        ["'model.embed_tokens.weight' in " + SECOND, "the index names are not there"],
    ),
    "a tensor in both shards": (
        lambda folder: shutil.copy(folder / "model-00001-of-00002.safetensors", folder / SECOND),
        ["that the index names are not there"],
    ),
    "a tensor more in one shard": (
        with_one_more,
        [f"1 tensors are in another file than the index says, or in two: '{EMBEDDING}' in {SECOND}. Fetch"],
    ),
    "a path outside": (
        lambda folder: change_index(folder, lambda files: files.update({NORM: "../../etc/passwd"})),
        ["names the file '../../etc/passwd'; allowed are names of .safetensors files in the same folder"],
    ),
    "a path outside that ends well": (
        lambda folder: change_index(folder, lambda files: files.update({NORM: "/etc/x.safetensors"})),
        ["names the file '/etc/x.safetensors'"],
    ),
    "a file that is a number": (
        lambda folder: change_index(folder, lambda files: files.update({NORM: 1})),
        ["names the file '1'"],
    ),
    "a stale index": (
        lambda folder: shutil.copy(folder / SECOND, folder / "model.safetensors"),
        ["both model.safetensors and an index that doesn't name it", "Remove the one that is not meant"],
    ),
    "an empty index": (lambda folder: change_index(folder, lambda files: files.clear()), ["has no weight_map"]),
    "an index that is no JSON": (
        lambda folder: (folder / "model.safetensors.index.json").write_text("{"),
        ["model.safetensors.index.json: is no JSON"],
    ),
    "no index": (without_index, ["model-00001-of-00002.safetensors, model-00002-of-00002.safetensors, but no index"]),
    "nothing but pickles": (
        replaced_by_pickles,
        ["has its weights in pytorch_model.bin; such files can run code", "Convert the model to safetensors"],
    ),
    "nothing but a GGUF": (
        only("tiny-Q8_0.gguf"),
        ["has no model.safetensors, but tiny-Q8_0.gguf. Name the file itself"],
    ),
    "no weights": (only(), ["has no model.safetensors and no model.safetensors.index.json"]),
    "no config": (lambda folder: (folder / "config.json").unlink(), ["config.json: can't be read (No such file"]),
    "a config that is a list": (lambda folder: (folder / "config.json").write_text("[]"), ["holds no JSON object"]),
    "a config deep in brackets": (
        lambda folder: (folder / "config.json").write_text("[" * 100_000),
        ["config.json: is no JSON"],
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_folders_are_refused(folder: Path, case: str) -> None:
    spoil, expected = BROKEN[case]
    spoil(folder)
    message = refused(folder)
    for text in expected:
        assert text in message


def test_an_empty_folder(tmp_path: Path) -> None:
    assert "config.json: can't be read" in refused(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantised by 'gptq'"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised by 'awq'"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantised by 'bitsandbytes'"),
        ({"model_type": "bert"}, "model_type is 'bert'; Cutaway reads gemma2, gemma3_text, gpt2, llama, mistral"),
        ({"model_type": None}, "model_type is 'None'; Cutaway reads"),
        ({"model_type": ["llama"]}, "Cutaway reads"),
        ({"attention_bias": True}, "attention_bias is 'True'"),
        ({"rope_scaling": 2.0}, "rope_scaling is '2.0'; it must be an object"),
        *(
            ({"model_type": "phi3", "partial_rotary_factor": part}, "it must be above 0 and at most 1")
            for part in (0.0, -0.5, 1.5, math.nan, math.inf)
        ),
        ({"model_type": "phi3", "partial_rotary_factor": 0.5, "head_dim": 10**400}, "head_dim is '1000"),
        ({"model_type": "phi3", "partial_rotary_factor": "0.5"}, "partial_rotary_factor is '0.5'; it must be float"),
        ({"layer_types": ["chunked_attention"]}, "layer_types is \"['chunked_attention']\"; Cutaway computes layers"),
        ({"layer_types": "full_attention"}, "layer_types is 'full_attention'; Cutaway computes layers of the kinds"),
        ({"model_type": "smollm3", "no_rope_layers": [1, 0, 1, 0]}, "no_rope_layers is '[1, 0, 1, 0]'; Cutaway"),
        ({"model_type": "smollm3", "no_rope_layers": [1, 1, 1, 1]}, "no_rope_layers is '[1, 1, 1, 1]'; Cutaway"),
        ({"model_type": "smollm3", "no_rope_layers": 4}, "no_rope_layers is '4'; Cutaway"),
        ({"model_type": "smollm3", "no_rope_layer_interval": 3}, "no_rope_layer_interval is '3'"),
        ({"model_type": "smollm3", "use_sliding_window": True}, "use_sliding_window is 'True'"),
        ({**GEMMA, "use_bidirectional_attention": True}, "use_bidirectional_attention is 'True'"),
        ({**GEMMA, "model_type": "gemma2", "use_bidirectional_attention": True}, "use_bidirectional_attention is"),
        ({**GEMMA, "sliding_window_pattern": "6"}, "sliding_window_pattern is '6'; it must be int"),
        *(
            ({"model_type": model_type, **part}, "partial_rotary_factor is '0.5'; in models of the type " + model_type)
            for model_type in ("llama", "mistral", "smollm3", "qwen2", "qwen3")
            for part in (
                {"partial_rotary_factor": 0.5},
                {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
            )
        ),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    assert message in refused(write_folder(tmp_path / "a", {**CONFIG, **changes}, stored()))


@pytest.mark.parametrize(("model_type", "has_gguf"), [("bert", False), ("mixtral", False), ("gemma3", True)])
def test_a_gguf_is_suggested_only_where_it_would_be_read(tmp_path: Path, model_type: str, has_gguf: bool) -> None:
    quantised = {"quantization_config": {"quant_method": "gptq"}}
    for name, more in (("a", {}), ("b", quantised)):
        message = refused(write_folder(tmp_path / name, {**CONFIG, "model_type": model_type, **more}, stored()))
        assert f"model_type is '{model_type}'" in message
        assert ("a GGUF of this one" in message) == has_gguf
        assert message.endswith(".")


def test_quantised_weights_without_a_word_in_the_config(tmp_path: Path) -> None:
    tensors = stored()
    raw, type_name, shape = tensors.pop("model.layers.0.mlp.up_proj.weight")
    tensors["model.layers.0.mlp.up_proj.qweight"] = (raw, type_name, shape)
    message = refused(write_folder(tmp_path / "a", CONFIG, tensors))
    assert "has quantised weights: 'model.layers.0.mlp.up_proj.qweight'; GPTQ, AWQ, bitsandbytes" in message


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickles_are_never_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    assert "can run code when they are opened, so Cutaway never opens them" in refused(tmp_path / name)


def test_weights_alone_are_no_model(folder: Path) -> None:
    assert f"Name the folder {folder}." in refused(folder / SECOND)


def test_buffers_that_nobody_needs_are_left_out(tmp_path: Path) -> None:
    tensors = stored()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = (np.zeros(32, np.uint8), "F32", [8])
    with open_hf_folder(write_folder(tmp_path / "a", CONFIG, tensors)) as source:
        assert not any("inv_freq" in name for name in source.tensors)


def test_other_files_do_not_matter(folder: Path) -> None:
    """Mistral's repositories have the weights a second time, in one file of another name."""
    (folder / "consolidated.safetensors").write_bytes(b"not read")
    (folder / "pytorch_model.bin").write_bytes(b"not read")
    with open_hf_folder(folder) as source:
        assert len(source.tensors) == 12


# Files made to do harm


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"])
@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "loop", "sparse", "deep", "lists"])
def test_what_is_no_ordinary_file(folder: Path, name: str, kind: str) -> None:
    """Nothing waits for it, and nothing takes memory that it doesn't have."""
    path = folder / name
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "sparse":
        path.touch()
        os.truncate(path, 1 << 40)
    else:
        path.write_bytes(b"[" * 100_000 if kind == "deep" else b'{"a": [' + b"[]," * 20_000_000 + b"1]}")
    tracemalloc.start()
    try:
        refused(folder)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("value", ["false", "true", 0, 1, [], {}])
def test_tied_is_true_or_false(tmp_path: Path, value: Any) -> None:
    message = refused(write_folder(tmp_path / "tiny", CONFIG | {"tie_word_embeddings": value}, stored()))
    assert "tie_word_embeddings is" in message


@pytest.mark.parametrize("name", ["token_embd.weight", "output.weight", "blk.0.attn_q.weight"])
@pytest.mark.parametrize("alone", [False, True])
def test_no_tensor_has_the_name_of_another_format(tmp_path: Path, name: str, alone: bool) -> None:
    """Under such a name a tensor would take the place of the one that is meant, without its rows in order."""
    theirs = {"token_embd": "model.embed_tokens", "output": "lm_head", "blk": "model.layers.0.self_attn.q_proj"}
    meant = f"{theirs[name.split('.')[0]]}.weight"
    tensors = stored()
    tensors[name] = tensors.pop(meant) if alone else tensors[meant]
    assert "names that Hugging Face's files don't use" in refused(write_folder(tmp_path / "tiny", CONFIG, tensors))


@pytest.mark.parametrize("kind", ["chunked_attention", "linear_attention", 1, None, []])
def test_a_kind_of_layer_that_is_not_known(tmp_path: Path, kind: Any) -> None:
    config = CONFIG | {"sliding_window": 8, "layer_types": [kind]}
    assert "layer_types is" in refused(write_folder(tmp_path / "tiny", config, stored()))


@pytest.mark.parametrize(("heads", "message"), [(4, "has 0 rows"), (10**30, "num_attention_heads is '1000")])
def test_a_matrix_without_rows(tmp_path: Path, heads: int, message: str) -> None:
    tensors = stored()
    tensors["model.layers.0.self_attn.q_proj.weight"] = (np.zeros((0, 64), np.uint8), "F16", [0, 32])
    config = CONFIG | {"num_attention_heads": heads}
    assert message in refused(write_folder(tmp_path / "tiny", config, tensors))
