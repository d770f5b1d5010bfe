"""Write `tests/fixtures/rope_tables.json`: transformers' tables of rotary frequencies, for each scaling.

Comes in: nothing. Goes out: for each case the arguments that transformers was given, its inverse frequencies (float32,
exact as decimal numbers) and its attention factor; and a table of sinusoidal positions from its own class.

    peers/bin/python tests/oracles/make_rope_fixture.py
"""

import json
from importlib.metadata import version
from typing import Any

import torch
from oracle_model import FIXTURES
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
CASES: dict[str, dict[str, Any]] = {
    "none": {"rope_type": "default"},
    "none, another base and width": {"rope_type": "default", "rope_theta": 10_000.0, "head_dim": 96},
    "linear": {"rope_type": "linear", "factor": 2.0},
    "dynamic, short": {"rope_type": "dynamic", "factor": 2.0, "seq_len": 100},
    "dynamic, long": {"rope_type": "dynamic", "factor": 2.0, "seq_len": 20_000},
    "llama3": {"rope_type": "llama3", "factor": 8.0, **LLAMA3},
    "llama3, factor 32": {"rope_type": "llama3", "factor": 32.0, **LLAMA3, "head_dim": 128},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048},
    "yarn, factor 40": {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 24,
        "beta_slow": 2,
        "rope_theta": 10_000.0,
    },
    "yarn, mscale": {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 4096,
        "mscale": 0.707,
        "mscale_all_dim": 1.0,
    },
    "yarn, attention factor": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 4096,
        "attention_factor": 1.5,
    },
    "yarn, not truncated": {
        "rope_type": "yarn",
        "factor": 16.0,
        "original_max_position_embeddings": 4096,
        "truncate": False,
    },
}


def table(case: dict[str, Any]) -> dict[str, Any]:
    arguments = {"rope_theta": 500_000.0, **case}
    head_dim, seq_len = arguments.pop("head_dim", 64), arguments.pop("seq_len", None)
    config = LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=8192,
        rope_parameters=dict(arguments),
    )
    if arguments["rope_type"] == "default":
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        frequencies, factor = arguments["rope_theta"] ** -exponents, 1.0
    else:
        frequencies, factor = ROPE_INIT_FUNCTIONS[arguments["rope_type"]](config, torch.device("cpu"), seq_len=seq_len)
    return {**arguments, "head_dim": head_dim, "seq_len": seq_len} | {
        "inverse_frequencies": frequencies.tolist(),
        "magnitude": float(factor),
    }


def main() -> None:
    width = 24
    sinusoids = MarianSinusoidalPositionalEmbedding(50, width)
    sinusoids.weight.data = sinusoids.create_weight()
    fixture = {
        "versions": {name: version(name) for name in ("torch", "transformers")},
        "cases": {name: table(case) for name, case in CASES.items()},
        # Sines in the first half of a row, cosines in the second.
        "sinusoids": sinusoids.weight.tolist(),
    }
    output = FIXTURES / "rope_tables.json"
    output.write_text(json.dumps(fixture, indent=None, separators=(",", ":")) + "\n")
    print(output.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
