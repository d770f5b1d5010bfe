"""From a config and a model's pieces to the record that the forward reads: the same for tiles and for float64.

In: a config; how to get a weight, a norm, an array of either, by their names in the file. Out: a ``Model``.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from cutaway.model.config import ModelConfig
from cutaway.model.positions import Positions, learned, rotary
from cutaway.model.records import Model
from cutaway.model.shapes import Part, layer_parts
from cutaway.ops.cpu.activation import GELU, SILU
from cutaway.ops.cpu.arrays import Floats

ACTIVATIONS: Final = {"silu": SILU, "gelu": GELU}


def positions_of(config: ModelConfig, rows: Floats | None) -> Positions:
    """The tables of a model's positions; ``rows``: [P, D] where it has learned ones."""
    return rotary(config.ropes, config.width) if rows is None else learned(rows)


def assemble(
    config: ModelConfig,
    weight: Callable[[str, Part], Any],
    norm: Callable[[str | None], Any],
    array: Callable[[Sequence[Any]], Any],
    position_rows: Floats | None,
    tied: bool,
) -> Model:
    """The record. ``weight(name, part)``: rows of the matrix of that name; ``norm(name)``: the norm of that name,
    without ".weight", or, of None, one that the model doesn't have; ``array``: a one-dimensional array of weights or of
    norms.
    ``tied``: whether the head is the embedding.
    """
    layers = range(config.num_layers)

    def norms(name: str) -> Any:
        has = config.has(f"blk.{{l}}.{name}.weight")
        return array([norm(f"blk.{layer}.{name}" if has else None) for layer in layers])

    vocabulary = Part("", 0, config.vocab_size)
    parts = layer_parts(config).values()
    matrices = [weight(f"blk.{layer}.{part.matrix}", part) for layer in layers for part in parts]
    positions = positions_of(config, position_rows)
    return Model(
        embedding=array([weight("token_embd", vocabulary)]),
        embedding_scale=np.float32(config.embedding_scale),
        position_rows=positions.rows,
        inverse_frequencies=positions.inverse_frequencies,
        magnitudes=positions.magnitudes,
        layers=array(matrices).reshape(config.num_layers, len(parts)),
        attention_norm=norms("attn_norm"),
        query_norm=norms("attn_q_norm"),
        key_norm=norms("attn_k_norm"),
        attention_post_norm=norms("post_attention_norm"),
        ffn_norm=norms("ffn_norm"),
        ffn_post_norm=norms("post_ffw_norm"),
        rope_table=np.array(config.rope_of_layer, np.int32),
        windows=np.array(config.windows, np.int32),
        output_norm=array([norm("output_norm")]),
        head=array([weight("token_embd" if tied else "output", vocabulary)]),
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rotary_dim=config.rotary_dim,
        rope_interleaved=config.rope_interleaved,
        attention_scale=np.float32(config.attention_scale),
        attention_cap=np.float32(config.attention_cap),
        logits_cap=np.float32(config.logits_cap),
        activation=ACTIVATIONS[config.activation],
    )
