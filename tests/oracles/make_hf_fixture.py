"""What transformers writes into a model's folder, and what it computes from it: the oracle of Hugging Face folders.

Goes out: `tests/fixtures/hf_folders.json` (for each model type config.json as it was saved, and the tensors' names and
shapes) and `hf_folders.npz` (log-probabilities at every position of ten prompts, float32). The weights are those of
`support.hf_weights`; they are not kept. Needs: torch transformers safetensors.

    PYTHONPATH=tests python tests/oracles/make_hf_fixture.py
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from support.hf_weights import PROMPTS, bfloat16_values

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
NO_IDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
SIZES = {
    **NO_IDS,
    "vocab_size": 67,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
WINDOW = {"sliding_window": 7, "query_pre_attn_scalar": 16}
PARTIAL = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
GPT2 = {"vocab_size": 67, "n_positions": 128, "n_embd": 64, "n_layer": 2, "n_head": 2}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {**SIZES, "head_dim": 32}),
    "llama, tied": ("llama", {**SIZES, "head_dim": 16, "tie_word_embeddings": True}),
    "llama 3": ("llama", {**SIZES, "head_dim": 32, "rope_parameters": LLAMA3}),
    "mistral": ("mistral", {**SIZES, "head_dim": 16, "sliding_window": 7}),
    "smollm3": ("smollm3", {**SIZES, "num_hidden_layers": 5, "tie_word_embeddings": True}),
    "qwen2": ("qwen2", SIZES),
    "qwen3": ("qwen3", {**SIZES, "head_dim": 32}),
    "gemma2": ("gemma2", {**SIZES, **WINDOW, "head_dim": 16}),
    "gemma3": ("gemma3_text", {**SIZES, **WINDOW, "head_dim": 16, "num_hidden_layers": 7}),
    "phi3": ("phi3", {**SIZES, "pad_token_id": 0, "hidden_size": 128, "rope_parameters": PARTIAL}),
    "gpt2": ("gpt2", {**GPT2, **NO_IDS}),
}


def main() -> None:
    saved, logprobs = {}, {}
    for case, (model_type, own) in CASES.items():
        config = CONFIG_MAPPING[model_type](**own)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.from_numpy(bfloat16_values(name, tuple(parameter.shape), model_type)))
            rows = [model(torch.tensor([ids])).logits[0].double().log_softmax(-1).numpy() for ids in PROMPTS]
        logprobs[case] = np.concatenate(rows).astype(np.float32)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            with safe_open(Path(folder) / "model.safetensors", "np") as file:
                shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
            saved[case] = {"config": json.loads((Path(folder) / "config.json").read_text()), "shapes": shapes}
    (FIXTURES / "hf_folders.json").write_text(json.dumps(saved, indent=1) + "\n")
    np.savez_compressed(FIXTURES / "hf_folders.npz", **logprobs)


if __name__ == "__main__":
    main()
