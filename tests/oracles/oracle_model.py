"""A GGUF file of the llama or qwen2 family → transformers' model of it in float32: the forward's oracle.

Comes in: the file, through the `gguf` package. Goes out: the model in evaluation mode with eager attention
and every weight dequantised to float32, and log-probabilities over the whole vocabulary in float64. Shares no
code with Cutaway.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGUFReader, dequantize
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"

# GGUF name inside `blk.N.` → name inside transformers' `model.layers.N.`
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_prompts(gguf_sha256: str, path: Path) -> list[dict[str, Any]]:
    """The records of a file of prompts; stops if they were made from another model file."""
    fixture = json.loads(path.read_text())
    if fixture["gguf_sha256"] != gguf_sha256:
        raise SystemExit(f"{path.name} belongs to file {fixture['gguf_sha256']}, this one is {gguf_sha256}")
    prompts: list[dict[str, Any]] = fixture["prompts"]
    return prompts


def half_split_rows(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Rows of Q or K from GGUF's order to transformers' (weight: [heads * Dh, D]).

    RoPE rotates Dh/2 pairs of rows of each head, pair j by the angle position * theta^(-2j/Dh). Which two
    rows make pair j is a convention: llama models in GGUF keep them side by side (rows 2j and 2j + 1,
    "interleaved"), transformers keeps them half a head apart (rows j and j + Dh/2, "half-split"). So row
    2j + s of the file, s = 0 or 1, becomes row s * Dh/2 + j: in [heads, Dh/2, 2, D] the axes of j and s
    change places. A score is a sum over the rows of one head of q * k, so reordering both alike leaves it
    unchanged; V needs nothing. The files of qwen2 are half-split already.
    """
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def load_oracle(path: Path) -> PreTrainedModel:
    """The file's model in float32, eager attention, evaluation mode; every weight comes from the file."""
    reader = GGUFReader(path)

    def get(key: str) -> Any:
        return reader.fields[key].contents()

    if (family := get("general.architecture")) not in ("llama", "qwen2"):
        raise SystemExit(f"{path} is of the {family} family; this oracle reads llama and qwen2 only")
    heads, kv_heads = get(f"{family}.attention.head_count"), get(f"{family}.attention.head_count_kv")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    tied = "output.weight" not in tensors
    theta = float(get(f"{family}.rope.freq_base"))
    width = get(f"{family}.embedding_length")
    shared = {
        "vocab_size": tensors["token_embd.weight"].shape[1].item(),
        "hidden_size": width,
        "intermediate_size": get(f"{family}.feed_forward_length"),
        "num_hidden_layers": get(f"{family}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": get(f"{family}.context_length"),
        "rms_norm_eps": float(get(f"{family}.attention.layer_norm_rms_epsilon")),
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "tie_word_embeddings": tied,
        "hidden_act": "silu",
        "bos_token_id": None,
        "eos_token_id": None,  # generation runs to its full length
        "attn_implementation": "eager",
        "dtype": torch.float32,
    }
    model: PreTrainedModel
    if family == "llama":
        head_dim = get("llama.rope.dimension_count")
        model = LlamaForCausalLM(LlamaConfig(**shared, head_dim=head_dim, attention_bias=False, mlp_bias=False))
    else:
        head_dim = width // heads
        model = Qwen2ForCausalLM(Qwen2Config(**shared, use_sliding_window=False))
    state: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if family == "llama" and name.endswith("attn_q.weight"):
            weight = half_split_rows(weight, heads)
        elif family == "llama" and name.endswith("attn_k.weight"):
            weight = half_split_rows(weight, kv_heads)
        state[transformers_name(name)] = torch.from_numpy(np.ascontiguousarray(weight))
    if tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]

    model.load_state_dict(state, strict=True)
    expected = theta ** -(np.arange(0, head_dim, 2) / head_dim)
    # A config key that transformers ignored would leave its default theta here.
    np.testing.assert_allclose(model.model.rotary_emb.inv_freq.numpy(), expected, rtol=1e-6)
    return model.eval()


def transformers_name(name: str) -> str:
    """`blk.3.attn_q.weight` → `model.layers.3.self_attn.q_proj.weight`."""
    outer = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
    if name in outer:
        return outer[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[part]}.{kind}"


def log_softmax(logits: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
    """logits: [T, V] → natural log-probabilities [T, V], computed in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    result: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


@torch.inference_mode()
def logprobs_at_every_position(model: PreTrainedModel, ids: list[int]) -> npt.NDArray[np.float64]:
    """ids: [T] → log-probabilities [T, V] of the token after each position."""
    return log_softmax(model(torch.tensor([ids]), use_cache=False).logits[0].numpy())
