"""The families of models, each described in a few lines of data over the one forward.

In: an architecture's name. Out: a ``Family``: what its files don't say themselves. Adding a family means adding an
entry here, and never a branch: what a model has or lacks is data in its record.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final


def of_layer(*names: str) -> tuple[str, ...]:
    """Names of tensors that each layer has, as the shape table writes them."""
    return tuple(f"blk.{{l}}.{name}" for name in names)


ENDS: Final = ("token_embd.weight", "output_norm.weight", "output.weight")
NORMS: Final = of_layer("attn_norm.weight", "ffn_norm.weight")
POST_NORMS: Final = of_layer("post_attention_norm.weight", "post_ffw_norm.weight")
HEAD_NORMS: Final = of_layer("attn_q_norm.weight", "attn_k_norm.weight")
ATTENTION: Final = of_layer("attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight")
FUSED_ATTENTION: Final = of_layer("attn_qkv.weight", "attn_output.weight")
FEED_FORWARD: Final = of_layer("ffn_gate.weight", "ffn_up.weight", "ffn_down.weight")
FUSED_FEED_FORWARD: Final = of_layer("ffn_up.weight", "ffn_down.weight")

Variants = Mapping[str, tuple[str, tuple[Any, ...]]]
"""Metadata (behind the architecture's prefix), what it means, and the values with which it changes nothing."""

UNSUPPORTED: Final[Variants] = MappingProxyType(
    {
        "expert_count": ("a mixture of experts", (0,)),
        "attention.causal": ("attention to later tokens", (True,)),
        "attention.clamp_kqv": ("bounds of queries, keys and values", (0.0,)),
        "attention.max_alibi_bias": ("positions as biases of scores", (0.0,)),
        "attention.output_scale": ("a scale of attention's output", (1.0,)),
        "attention.temperature_scale": ("a temperature of scores", (0.0,)),
        "attention.shared_kv_layers": ("keys and values that layers share", (0,)),
        "use_parallel_residual": ("attention and feed-forward side by side", (False,)),
        "embedding_scale": ("a scale of the embedding", (1.0,)),
        "residual_scale": ("a scale of what is added to the residual stream", (1.0,)),
        "logit_scale": ("a scale of the logits", (1.0,)),
        "pooling_type": ("one vector for a text, not its continuation", (0,)),
        "rope.dimension_sections": ("positions in several dimensions", ()),
    }
)
"""Of all families."""
WINDOWS: Final[Variants] = MappingProxyType({"attention.sliding_window": ("a sliding window", (0,))})


@dataclass(frozen=True)
class Family:
    """What its files don't say about a family of models."""

    architecture: str  # general.architecture
    tensors: tuple[str, ...]  # those that its models have, by the shape table's names
    rope_interleaved: bool = False  # GGUF stores some families' Q and K rows permuted for interleaved pairs
    rotary: bool = True
    no_rope_step: int = 0  # each layer of that number, counted from 1, has no rotary positions
    layer_norm: bool = False  # with a centre and a bias; else RMS norm
    activation: str = "silu"
    gated: bool = True
    embedding_scaled: bool = False  # by √D
    scaled_by_width: tuple[int, ...] = ()  # numbers of layers with which attention's scale is √(H / D), not √(1 / Dh)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Metadata (behind the architecture's prefix) that its files may leave out, since all its models have the same."""
    unsupported: Variants = field(default_factory=dict)
    """What its files may ask for that the forward does not compute, besides ``UNSUPPORTED``."""


FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        family.architecture: family
        for family in (
            # Llama 1 to 3.3, Mistral with and without a window, SmolLM and SmolLM2, TinyLlama, Yi.
            Family(
                "llama",
                (*ENDS, "rope_freqs.weight", *NORMS, *ATTENTION, *FEED_FORWARD),
                rope_interleaved=True,
            ),
            Family(
                "smollm3",
                (*ENDS, *NORMS, *ATTENTION, *FEED_FORWARD),
                rope_interleaved=True,
                no_rope_step=4,
            ),
            Family(
                "qwen2",
                (*ENDS, *NORMS, *ATTENTION, *of_layer("attn_q.bias", "attn_k.bias", "attn_v.bias"), *FEED_FORWARD),
                unsupported=WINDOWS,
            ),
            Family(
                "qwen3",
                (*ENDS, *NORMS, *ATTENTION, *HEAD_NORMS, *FEED_FORWARD),
                unsupported=WINDOWS,
            ),
            # Norms of the outputs, too; every second layer attends a window; scores are soft-capped.
            Family(
                "gemma2",
                (*ENDS, *NORMS, *POST_NORMS, *ATTENTION, *FEED_FORWARD),
                activation="gelu",
                embedding_scaled=True,
                scaled_by_width=(46,),
                defaults={
                    "rope.freq_base": 10_000.0,
                    "attention.sliding_window": 4096,
                    "attention.sliding_window_pattern": 2,
                    "attn_logit_softcapping": 50.0,
                    "final_logit_softcapping": 30.0,
                },
            ),
            # Five of six layers attend a window, and turn by another base.
            Family(
                "gemma3",
                (*ENDS, *NORMS, *POST_NORMS, *ATTENTION, *HEAD_NORMS, *FEED_FORWARD),
                activation="gelu",
                embedding_scaled=True,
                scaled_by_width=(62,),
                defaults={"rope.freq_base_swa": 10_000.0, "attention.sliding_window_pattern": 6},
            ),
            Family("phi3", (*ENDS, *NORMS, *FUSED_ATTENTION, *FUSED_FEED_FORWARD)),
            Family(
                "gpt2",
                (
                    *ENDS,
                    "position_embd.weight",
                    "output_norm.bias",
                    *NORMS,
                    *of_layer("attn_norm.bias", "ffn_norm.bias"),
                    *FUSED_ATTENTION,
                    *of_layer("attn_qkv.bias", "attn_output.bias"),
                    *FUSED_FEED_FORWARD,
                    *of_layer("ffn_up.bias", "ffn_down.bias"),
                ),
                rotary=False,
                layer_norm=True,
                activation="gelu",
                gated=False,
            ),
        )
    }
)
"""By the name of the architecture."""
