"""Every value of a config or of metadata, replaced by every wrong one: refused with a short message, or read as numbers
that the forward can use.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway.errors import ModelFileError
from cutaway.formats.open_model import open_model
from cutaway.formats.source import ModelSource
from cutaway.model.assemble import positions_of
from cutaway.model.config import ModelConfig, read_config
from cutaway.model.loader import check_tensors
from support.hf_folders import hf_config, hf_tensors, write_folder
from support.tiny_llama import TinySizes, tiny_metadata, tiny_tensors, write_gguf

SIZES = TinySizes(num_layers=1, width=32, num_heads=4, num_kv_heads=2, head_dim=16, ffn_width=32, vocab_size=48)
NAN, INFINITE = math.nan, math.inf
YARN = {"rope_type": "yarn", "factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0}
ROPES: tuple[dict[str, Any], ...] = (
    {"rope_type": []},
    {"rope_type": "yarn", "factor": "x"},
    {"rope_type": "yarn", "factor": 1e300},
    *(YARN | {key: value} for key in ("attention_factor", "beta_fast", "mscale") for value in (NAN, INFINITE, "x", [])),
    YARN | {"truncate": "x"},
    YARN | {"beta_fast": -1.0},
    LLAMA3 | {"original_max_position_embeddings": 8192},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "dynamic", "factor": 1e-9, "original_max_position_embeddings": 1},
    {"rope_type": "longrope", "short_factor": [1.0]},
    {"sliding_attention": [1]},
    {"sliding_attention": {"rope_theta": "x"}, "full_attention": {"rope_type": 1}},
)
WRONG: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 10**30, 1e308, -1e308, NAN, INFINITE, "x", "", "x" * 100_000),
    *([], [1], ["x"] * 100_000, [[[]]], {}, {"a": 1}),
)
KEYS = (
    *hf_config(SIZES),
    *(
        "rope_scaling",
        "rope_parameters",
        "sliding_window",
        "use_sliding_window",
        "layer_types",
        "query_pre_attn_scalar",
    ),
    *("partial_rotary_factor", "attention_bias", "quantization_config", "attn_logit_softcapping", "n_inner"),
    *("rope_local_base_freq", "final_logit_softcapping", "no_rope_layer_interval"),
)


def read(source: ModelSource) -> ModelConfig:
    """The config and its tables, checked for what would become wrong numbers."""
    config = read_config(source)
    check_tensors(source, config)
    tables = positions_of(config, None if config.ropes else np.zeros((1, config.width), np.float32))
    assert np.isfinite(tables.inverse_frequencies).all()
    assert np.isfinite(tables.magnitudes).all()
    constants = (config.norm_epsilon, config.attention_scale, config.attention_cap, config.logits_cap)
    assert all(math.isfinite(each) and each >= 0 for each in constants)
    assert config.num_heads % config.num_kv_heads == 0
    return config


def reads_or_is_refused(path: Path, what: str) -> None:
    try:
        with open_model(path) as source:
            read(source)
        message = ""
    except ModelFileError as error:
        message = str(error)
    assert len(message) < 1500, what
    assert message.isprintable(), what


def changes(key: str) -> Iterator[Any]:
    yield from WRONG
    if key in ("rope_scaling", "rope_parameters"):
        yield from ROPES


@pytest.mark.parametrize("model_type", ["llama", "phi3", "gemma3_text", "gpt2", "smollm3"])
def test_every_value_of_a_config(tmp_path: Path, model_type: str) -> None:
    folder = write_folder(tmp_path / "tiny", {}, hf_tensors(SIZES, tiny_tensors(SIZES, ("F16",))))
    sound = hf_config(SIZES, model_type) | {"sliding_window": 8}
    if model_type == "phi3":
        sound |= {"partial_rotary_factor": 0.5, "head_dim": None}
    if model_type == "gpt2":
        sound |= {"n_embd": 32, "n_head": 4, "n_layer": 1, "n_positions": 64, "layer_norm_epsilon": 1e-5}
    for key in (*KEYS, *(each for each in sound if each.startswith("n_"))):
        for value in changes(key):
            (folder / "config.json").write_text(json.dumps(sound | {key: value}))
            reads_or_is_refused(folder, f"{key}: {str(value)[:80]}")
        (folder / "config.json").write_text(json.dumps({name: each for name, each in sound.items() if name != key}))
        reads_or_is_refused(folder, f"without {key}")


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "gpt2", "qwen2"])
def test_every_value_of_metadata(tmp_path: Path, architecture: str) -> None:
    tensors = tiny_tensors(SIZES, ("F16",), architecture=architecture)
    sound = tiny_metadata(SIZES, architecture)
    scaling = ("type", "factor", "original_context_length", "yarn_beta_fast", "finetuned", "attn_factor", "mscale")
    others = (*(f"rope.scaling.{key}" for key in scaling), "attention.sliding_window", "expert_count")
    others = (*others, "attention.sliding_window_pattern", "attention.scale", "attn_logit_softcapping")
    keys = dict.fromkeys((*sound, *(f"{architecture}.{key}" for key in others)))
    values: tuple[Any, ...] = (0, 1, 7, 2**31, 1e30, -1.0, 0.0, NAN, INFINITE, True, "x", "yarn", "dynamic")
    values += ([1, 2], [0.5, NAN], ["a", "b"], [True, False])
    for key in keys:
        if key.startswith("tokenizer."):
            continue
        for value in values:
            changed = sound | {key: value}
            if key.startswith(f"{architecture}.rope.scaling.") and not key.endswith(("type", "factor")):
                changed |= {f"{architecture}.rope.scaling.type": "yarn", f"{architecture}.rope.scaling.factor": 2.0}
            path = write_gguf(tmp_path / "tiny.gguf", changed, tensors)
            reads_or_is_refused(path, f"{key}: {value}")
