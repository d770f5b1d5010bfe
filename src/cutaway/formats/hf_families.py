"""What families of models look like in Hugging Face's folders, as data: their config's keys, their tensors' names.

In: a config's ``model_type``. Out: an ``HFFamily``: how to say the same in GGUF's terms. Sources: the model classes of
transformers, and llama.cpp's converter, which defined GGUF's names and orders.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

Names = Mapping[str, str]
Keys = Mapping[str, tuple[str, type]]


@dataclass(frozen=True)
class HFFamily:
    """A ``model_type``. Names of tensors are without the endings ``.weight`` and ``.bias``; ``{l}`` is a layer."""

    model_type: str
    architecture: str  # GGUF's
    prefix: str  # of all names of tensors but the head's; files of a model without a head leave it out
    tensors: Names  # Hugging Face's name → GGUF's
    keys: Keys  # of config.json → GGUF's key, behind the architecture's prefix, and its type
    tied: bool = False  # where config.json doesn't say
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What config.json may leave out: the model class's own values."""
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Keys of config.json that change the computation, and the values of which the forward knows the meaning."""
    partial_rotary: bool = False  # whether rotary positions may turn a part of each head (partial_rotary_factor)
    permuted: Names = field(default_factory=dict)
    """Matrices (GGUF's names) whose rows GGUF has in another order, and the config's key of their number of heads: the
    two rows that rotary positions turn together are half a head apart here, neighbours there."""
    transposed: tuple[str, ...] = ()  # matrices (GGUF's names) that are stored columns first
    norms_less_one: bool = False  # weights of norms are stored less 1
    not_weights: tuple[str, ...] = ()  # names of buffers that old files have, and nobody needs


HEAD: Final = "lm_head"

ENDS: Final = {"embed_tokens": "token_embd", "norm": "output_norm"}
ATTENTION: Final = {
    f"layers.{{l}}.self_attn.{theirs}": f"blk.{{l}}.{ours}"
    for theirs, ours in (
        ("q_proj", "attn_q"),
        ("k_proj", "attn_k"),
        ("v_proj", "attn_v"),
        ("o_proj", "attn_output"),
    )
}
HEAD_NORMS: Final = {f"layers.{{l}}.self_attn.{each}_norm": f"blk.{{l}}.attn_{each}_norm" for each in "qk"}
FEED_FORWARD: Final = {
    f"layers.{{l}}.mlp.{theirs}_proj": f"blk.{{l}}.ffn_{theirs}" for theirs in ("gate", "up", "down")
}
NORMS: Final = {
    "layers.{l}.input_layernorm": "blk.{l}.attn_norm",
    "layers.{l}.post_attention_layernorm": "blk.{l}.ffn_norm",
}
FOUR_NORMS: Final = {
    "layers.{l}.input_layernorm": "blk.{l}.attn_norm",
    "layers.{l}.post_attention_layernorm": "blk.{l}.post_attention_norm",
    "layers.{l}.pre_feedforward_layernorm": "blk.{l}.ffn_norm",
    "layers.{l}.post_feedforward_layernorm": "blk.{l}.post_ffw_norm",
}
PLAIN: Final = {**ENDS, **NORMS, **ATTENTION, **FEED_FORWARD}

KEYS: Final[Keys] = {
    "max_position_embeddings": ("context_length", int),
    "num_hidden_layers": ("block_count", int),
    "hidden_size": ("embedding_length", int),
    "intermediate_size": ("feed_forward_length", int),
    "num_attention_heads": ("attention.head_count", int),
    "num_key_value_heads": ("attention.head_count_kv", int),
    "head_dim": ("attention.key_length", int),
    "rms_norm_eps": ("attention.layer_norm_rms_epsilon", float),
    "rope_theta": ("rope.freq_base", float),
}
WINDOW_KEYS: Final[Keys] = {**KEYS, "sliding_window": ("attention.sliding_window", int)}
SOFT_CAPS: Final[Keys] = {
    "attn_logit_softcapping": ("attn_logit_softcapping", float),
    "final_logit_softcapping": ("final_logit_softcapping", float),
}
GPT2_KEYS: Final[Keys] = {
    "n_positions": ("context_length", int),
    "n_layer": ("block_count", int),
    "n_embd": ("embedding_length", int),
    "n_inner": ("feed_forward_length", int),
    "n_head": ("attention.head_count", int),
    "layer_norm_epsilon": ("attention.layer_norm_epsilon", float),
}

BASE: Final = {"rope_theta": 10_000.0}
SILU: Final = {"hidden_act": ("silu",)}
NO_BIAS: Final = {"attention_bias": (False,), "mlp_bias": (False,)}
GEMMA: Final = {
    "hidden_activation": ("gelu_pytorch_tanh",),
    "attention_bias": (False,),
    "use_bidirectional_attention": (False,),
}
NO_WINDOW: Final = {"use_sliding_window": False}
WINDOW: Final = {"sliding_window": 4096}
INTERLEAVED: Final = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
FREQUENCIES: Final = ("layers.{l}.self_attn.rotary_emb.inv_freq",)

HF_FAMILIES: Final[Mapping[str, HFFamily]] = MappingProxyType(
    {
        family.model_type: family
        for family in (
            *(
                HFFamily(
                    model_type,
                    "llama",
                    "model.",
                    PLAIN,
                    keys,
                    defaults=defaults,
                    fixed={**SILU, **NO_BIAS},
                    permuted=INTERLEAVED,
                    not_weights=FREQUENCIES,
                )
                for model_type, keys, defaults in (
                    ("llama", KEYS, BASE),  # transformers' class has no window, whatever config.json says
                    ("mistral", WINDOW_KEYS, {**BASE, **WINDOW}),
                )
            ),
            HFFamily(
                "smollm3",
                "smollm3",
                "model.",
                PLAIN,
                WINDOW_KEYS,
                tied=True,
                defaults={"rope_theta": 2_000_000.0, **NO_WINDOW},
                fixed={**SILU, **NO_BIAS, "no_rope_layer_interval": (4,), "use_sliding_window": (False,)},
                permuted=INTERLEAVED,
            ),
            HFFamily(
                "qwen2",
                "qwen2",
                "model.",
                PLAIN,
                WINDOW_KEYS,
                defaults={**BASE, **NO_WINDOW},
                fixed=SILU,
                not_weights=FREQUENCIES,
            ),
            HFFamily(
                "qwen3",
                "qwen3",
                "model.",
                {**PLAIN, **HEAD_NORMS},
                WINDOW_KEYS,
                defaults={**BASE, **NO_WINDOW},
                fixed={**SILU, **NO_BIAS},
            ),
            HFFamily(
                "gemma2",
                "gemma2",
                "model.",
                {**ENDS, **FOUR_NORMS, **ATTENTION, **FEED_FORWARD},
                {**WINDOW_KEYS, **SOFT_CAPS},
                tied=True,
                defaults={**BASE, **WINDOW},
                fixed=GEMMA,
                norms_less_one=True,
            ),
            HFFamily(
                "gemma3_text",
                "gemma3",
                "model.",
                {**ENDS, **FOUR_NORMS, **ATTENTION, **HEAD_NORMS, **FEED_FORWARD},
                {**WINDOW_KEYS, **SOFT_CAPS, "rope_local_base_freq": ("rope.freq_base_swa", float)},
                tied=True,
                defaults={"rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0, **WINDOW},
                fixed=GEMMA,
                norms_less_one=True,
            ),
            HFFamily(
                "phi3",
                "phi3",
                "model.",
                {
                    **ENDS,
                    **NORMS,
                    "layers.{l}.self_attn.qkv_proj": "blk.{l}.attn_qkv",
                    "layers.{l}.self_attn.o_proj": "blk.{l}.attn_output",
                    "layers.{l}.mlp.gate_up_proj": "blk.{l}.ffn_up",
                    "layers.{l}.mlp.down_proj": "blk.{l}.ffn_down",
                },
                WINDOW_KEYS,
                defaults=BASE,
                fixed={**SILU, **NO_BIAS},
                partial_rotary=True,
            ),
            HFFamily(
                "gpt2",
                "gpt2",
                "transformer.",
                {
                    "wte": "token_embd",
                    "wpe": "position_embd",
                    "h.{l}.ln_1": "blk.{l}.attn_norm",
                    "h.{l}.attn.c_attn": "blk.{l}.attn_qkv",
                    "h.{l}.attn.c_proj": "blk.{l}.attn_output",
                    "h.{l}.ln_2": "blk.{l}.ffn_norm",
                    "h.{l}.mlp.c_fc": "blk.{l}.ffn_up",
                    "h.{l}.mlp.c_proj": "blk.{l}.ffn_down",
                    "ln_f": "output_norm",
                },
                GPT2_KEYS,
                tied=True,
                fixed={
                    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
                    "scale_attn_weights": (True,),
                    "scale_attn_by_inverse_layer_idx": (False,),
                },
                transposed=("attn_qkv", "attn_output", "ffn_up", "ffn_down"),
                not_weights=("h.{l}.attn.bias", "h.{l}.attn.masked_bias"),
            ),
        )
    }
)
"""By the config's ``model_type``."""

AS_GGUF: Final = ("gemma3",)
"""Types that are not read from a folder, of which a GGUF can be run: it leaves out the part that sees images."""
