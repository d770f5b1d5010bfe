"""A config at will: that of a plain llama, with any of its numbers changed."""

import math
from typing import Any

from cutaway.model.config import ModelConfig
from cutaway.model.families import FAMILIES
from cutaway.model.positions import Rope


def plain_config(**changes: Any) -> ModelConfig:
    """Two layers, two heads over one KV head; what depends on a changed number follows, unless it is changed itself."""
    numbers: dict[str, Any] = {
        "name": "tiny",
        "architecture": "llama",
        "context_length": 64,
        "num_layers": 2,
        "width": 32,
        "num_heads": 2,
        "num_kv_heads": 1,
        "head_dim": 16,
        "ffn_width": 64,
        "vocab_size": 96,
        "norm_epsilon": 1e-5,
        "layer_norm": False,
        "activation": "silu",
        "gated": True,
        "rope_interleaved": True,
        **changes,
    }
    layers, head_dim = numbers["num_layers"], numbers["head_dim"]
    following = {
        "tensors": FAMILIES[numbers["architecture"]].tensors,
        "ropes": (Rope(10_000.0, head_dim),),
        "rope_of_layer": (0,) * layers,
        "windows": (0,) * layers,
        "attention_scale": 1 / math.sqrt(head_dim),
    }
    return ModelConfig(**{**following, **numbers})
