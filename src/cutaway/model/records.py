"""The records that the forward is handed: the model's weights and sizes, and the workspace.

They are plain named tuples of arrays and numbers, so that the same forward can be compiled, run by CPython, or run in
float64.
"""

from typing import Any, NamedTuple

import numpy as np

from cutaway.ops.arguments import kept
from cutaway.ops.cpu.arrays import Activation, AttentionScratch, Bytes, Doubles, Floats, Ints


@kept
class Model(NamedTuple):
    """Weights and sizes. A weight is a record ``ops.cpu.tiles.WEIGHT``, a norm a record ``ops.cpu.norm.NORM``; in the
    reference run, objects with dense numbers.

    What differs between families is data here, read at run time. What a model doesn't have is there and empty: a norm
    without a weight, a matrix without rows, no table, a window or a cap of 0.
    """

    embedding: Any  # [1] weight [V, D]
    embedding_scale: np.float32
    position_rows: Floats  # [P, D] added to the embedding
    inverse_frequencies: Doubles  # [G, R/2] of rotary positions
    magnitudes: Doubles  # [G] of their cosines and sines
    layers: Any  # [L, 7] weights: q, k, v, output, gate, up, down
    attention_norm: Any  # [L] norms of attention's input
    query_norm: Any  # [L] norms of each query head
    key_norm: Any  # [L] norms of each key head
    attention_post_norm: Any  # [L] norms of attention's output
    ffn_norm: Any  # [L] norms of the feed-forward's input
    ffn_post_norm: Any  # [L] norms of its output
    rope_table: Ints  # [L] the table that turns a layer's heads, or -1
    windows: Ints  # [L] positions that a layer's tokens attend, their own included; 0: all
    output_norm: Any  # [1] norm
    head: Any  # [1] weight [V, D]
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int  # R
    rope_interleaved: bool
    attention_scale: np.float32
    attention_cap: np.float32
    logits_cap: np.float32
    activation: int  # ``ops.cpu.activation.SILU`` or ``GELU``


@kept
class Workspace(NamedTuple):
    """The buffers of a step, allocated once from the shape table; a step uses the first T (or O) rows of each."""

    x: Floats  # [T, D] the residual stream
    h: Floats  # [T, D] what a block reads from it or adds to it
    angles: Floats  # [T, G R]
    activation: Activation  # [T, K] quantised input of the next matmul
    panels: Bytes  # [n, W] each thread's room for matrix products
    qkv: Floats  # [T, (H + 2 Hkv) Dh]
    attended: Floats  # [T, H Dh]
    gate_up: Floats  # [T, 2 F], or [T, F] without a gate
    gated: Floats  # [T, F]
    last: Floats  # [O, D]
    logits: Floats  # [O, V]
    scratch: AttentionScratch
