"""A GGUF file → transformers' model of it in float32: the forward's oracle.

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
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"

# GGUF name inside `blk.N.` → name inside transformers' `model.layers.N.`
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Families that name them otherwise.
OTHER_NAMES = {
    "gemma": {
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
    "gpt2": {
        "attn_norm": "ln_1",
        "attn_qkv": "attn.c_attn",
        "attn_output": "attn.c_proj",
        "ffn_norm": "ln_2",
        "ffn_up": "mlp.c_fc",
        "ffn_down": "mlp.c_proj",
    },
}
OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
OUTER_NAMES_GPT2 = {
    "token_embd.weight": "transformer.wte.weight",
    "position_embd.weight": "transformer.wpe.weight",
    "output_norm.weight": "transformer.ln_f.weight",
    "output_norm.bias": "transformer.ln_f.bias",
}


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_prompts(gguf_sha256: str, path: Path) -> list[dict[str, Any]]:
    """The records of a file of prompts; stops if they were made from another model file."""
    fixture = json.loads(path.read_text())
    if gguf_sha256 not in fixture["gguf_sha256"]:  # one digest, or several of files with the same vocabulary
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


class Metadata:
    """A file's metadata behind its architecture's prefix."""

    def __init__(self, reader: GGUFReader) -> None:
        self._fields = reader.fields
        self.family: str = reader.fields["general.architecture"].contents()

    def __call__(self, key: str, absent: Any = ...) -> Any:
        name = f"{self.family}.{key}"
        if name not in self._fields and absent is not ...:
            return absent
        return self._fields[name].contents()


def rope_parameters(get: Metadata, llama3: dict[str, float] | None) -> dict[str, Any]:
    """As transformers wants them; `llama3`: what the tensor `rope_freqs.weight` was made from."""
    plain = {"rope_type": "default", "rope_theta": float(get("rope.freq_base", 10_000.0))}
    if llama3 is not None:
        return {**plain, "rope_type": "llama3", **llama3}
    kind = get("rope.scaling.type", "none")
    if kind == "none":
        return plain
    original = get("rope.scaling.original_context_length", None)
    scaled = {**plain, "rope_type": kind, "factor": float(get("rope.scaling.factor"))}
    return scaled if original is None else {**scaled, "original_max_position_embeddings": original}


def gpt2_config(get: Metadata, vocab_size: int) -> dict[str, Any]:
    return {
        "vocab_size": vocab_size,
        "n_positions": get("context_length"),
        "n_embd": get("embedding_length"),
        "n_layer": get("block_count"),
        "n_head": get("attention.head_count"),
        "n_inner": get("feed_forward_length"),
        "layer_norm_epsilon": float(get("attention.layer_norm_epsilon")),
        "activation_function": "gelu_new",
    }


def config_of(get: Metadata, vocab_size: int, llama3: dict[str, float] | None) -> tuple[str, dict[str, Any]]:
    """transformers' name of the model type, and its config, from the file's metadata."""
    family, heads, width = get.family, get("attention.head_count"), get("embedding_length")
    if family == "gpt2":
        return family, gpt2_config(get, vocab_size)
    head_dim = get("attention.key_length", width // heads)
    rope, window = rope_parameters(get, llama3), get("attention.sliding_window", None)
    shared = {
        "vocab_size": vocab_size,
        "hidden_size": width,
        "intermediate_size": get("feed_forward_length"),
        "num_hidden_layers": get("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": get("attention.head_count_kv"),
        "head_dim": head_dim,
        "max_position_embeddings": get("context_length"),
        "rms_norm_eps": float(get("attention.layer_norm_rms_epsilon")),
        "rope_parameters": rope,
    }
    if family == "llama":
        model_type = "llama" if window is None else "mistral"
        return model_type, shared if window is None else {**shared, "sliding_window": window}
    if family == "phi3":
        part = get("rope.dimension_count") / head_dim
        rope = {**rope, "partial_rotary_factor": part}
        more = {"rope_parameters": rope, "original_max_position_embeddings": get("context_length")}
        return "phi3", {**shared, **more, "sliding_window": window}
    if family in ("qwen2", "qwen3", "smollm3"):
        return family, {**shared, "use_sliding_window": False}
    gemma = {**shared, "sliding_window": window, "query_pre_attn_scalar": head_dim}
    if family == "gemma2":
        caps = {f"{short}_logit_softcapping": get(f"{short}_logit_softcapping") for short in ("attn", "final")}
        return "gemma2", {**gemma, **caps}
    assert family == "gemma3", f"this oracle doesn't read the {family} family"
    bases = {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0}}
    return "gemma3_text", {**gemma, "rope_parameters": bases}


def load_oracle(path: Path, llama3: dict[str, float] | None = None) -> PreTrainedModel:
    """The file's model in float32, eager attention, evaluation mode; every weight comes from the file."""
    reader = GGUFReader(path)
    get = Metadata(reader)
    tensors = {tensor.name: tensor for tensor in reader.tensors if tensor.name != "rope_freqs.weight"}
    tied = "output.weight" not in tensors
    model_type, own = config_of(get, tensors["token_embd.weight"].shape[1].item(), llama3)
    config = CONFIG_MAPPING[model_type](
        **own,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=None,  # generation runs to its full length
        pad_token_id=None,
    )
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    state: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        weight = weight.reshape([int(size) for size in reversed(tensor.shape)])
        if get.family in ("llama", "smollm3") and name.endswith(("attn_q.weight", "attn_k.weight")):
            weight = half_split_rows(weight, get(f"attention.head_count{'_kv' * name.endswith('attn_k.weight')}"))
        elif get.family.startswith("gemma") and "norm" in name:
            weight -= 1  # the file has 1 + w, of which transformers keeps w
        elif get.family == "gpt2" and name.startswith("blk.") and weight.ndim == 2:
            weight = weight.T  # transformers keeps GPT-2's matrices as [inputs, outputs]
        state[transformers_name(name, get.family)] = torch.from_numpy(np.ascontiguousarray(weight))
    if tied:
        state["lm_head.weight"] = state[transformers_name("token_embd.weight", get.family)]
    model.load_state_dict(state, strict=True)
    if model_type == "llama" and llama3 is None and own["rope_parameters"]["rope_type"] == "default":
        head_dim, theta = own["head_dim"], own["rope_parameters"]["rope_theta"]
        expected = theta ** -(np.arange(0, head_dim, 2) / head_dim)
        # A config key that transformers ignored would leave its default theta here.
        np.testing.assert_allclose(model.model.rotary_emb.inv_freq.numpy(), expected, rtol=1e-6)
    return model.eval()


def transformers_name(name: str, family: str) -> str:
    """`blk.3.attn_q.weight` → `model.layers.3.self_attn.q_proj.weight`."""
    outer = OUTER_NAMES_GPT2 if family == "gpt2" else OUTER_NAMES
    if name in outer:
        return outer[name]
    _, layer, part, kind = name.split(".")
    inner = {**LAYER_NAMES, **OTHER_NAMES.get("gemma" if family.startswith("gemma") else family, {})}
    return f"{'transformer.h' if family == 'gpt2' else 'model.layers'}.{layer}.{inner[part]}.{kind}"


def log_softmax(logits: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
    """logits: [T, V] → natural log-probabilities [T, V], computed in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    result: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


@torch.inference_mode()
def logprobs_at_every_position(model: PreTrainedModel, ids: list[int]) -> npt.NDArray[np.float64]:
    """ids: [T] → log-probabilities [T, V] of the token after each position."""
    return log_softmax(model(torch.tensor([ids]), use_cache=False).logits[0].numpy())
