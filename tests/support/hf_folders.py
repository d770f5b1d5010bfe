"""Small random models in Hugging Face's layout: the same numbers as a GGUF of ``tiny_llama``, written as safetensors.

In: sizes and tensors in GGUF's names and order. Out: a folder with config.json and one safetensors file, or shards with
an index. Names are written down here once more, by hand; what writes the files is not what reads them.
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from support.tiny_llama import Tensors, TinySizes

DTYPES = {"F32": 4, "F16": 2, "BF16": 2}
Stored = dict[str, tuple[npt.NDArray[np.uint8], str, list[int]]]  # bytes, type, shape

NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def hf_name(name: str) -> str:
    """GGUF's name of a tensor → Hugging Face's."""
    *layer, matrix, ending = name.split(".")
    return f"model.layers.{layer[1]}.{NAMES[matrix]}.{ending}" if layer else f"{OUTER[matrix]}.{ending}"


def hf_tensors(sizes: TinySizes, tensors: Tensors, architecture: str = "llama") -> Stored:
    """The tensors as Hugging Face has them: of a llama, the rows of a pair half a head apart, not side by side."""
    stored: Stored = {}
    for name, (array, type_name) in tensors.items():
        raw = np.ascontiguousarray(array).view(np.uint8)
        matrix = name.split(".")[-2]
        if architecture == "llama" and matrix in ("attn_q", "attn_k"):
            heads = sizes.num_heads if matrix == "attn_q" else sizes.num_kv_heads
            raw = raw.reshape(heads, sizes.head_dim // 2, 2, -1).swapaxes(1, 2).reshape(raw.shape)
        shape = [*raw.shape[:-1], raw.shape[-1] // DTYPES[type_name]]
        stored[hf_name(name)] = (np.ascontiguousarray(raw), type_name, shape)
    return stored


def safetensors(stored: Stored, metadata: Mapping[str, str] | None = None) -> bytes:
    """The file."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    begin = 0
    for name, (raw, type_name, shape) in stored.items():
        header[name] = {"dtype": type_name, "shape": shape, "data_offsets": [begin, begin + raw.nbytes]}
        begin += raw.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(raw.tobytes() for raw, _, _ in stored.values())


def hf_config(sizes: TinySizes, architecture: str = "llama", tied: bool = False) -> dict[str, Any]:
    """The config.json that goes with ``tiny_metadata``."""
    return {
        "model_type": architecture,
        "vocab_size": sizes.vocab_size,
        "max_position_embeddings": sizes.context_length,
        "num_hidden_layers": sizes.num_layers,
        "hidden_size": sizes.width,
        "intermediate_size": sizes.ffn_width,
        "num_attention_heads": sizes.num_heads,
        "num_key_value_heads": sizes.num_kv_heads,
        "head_dim": sizes.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": tied,
    }


def write_folder(folder: Path, config: Mapping[str, Any], stored: Stored, shards: int = 1) -> Path:
    """The folder; with several shards, an index."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors(stored, {"format": "pt"}))
        return folder
    weight_map = {}
    for number in range(shards):
        name = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(stored.items())[number::shards])
        (folder / name).write_bytes(safetensors(part))
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": sum(raw.nbytes for raw, _, _ in stored.values())}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
