"""The records that the forward is handed: the model's weights and sizes, and the workspace.

They are plain named tuples of arrays and numbers, so that the same forward can be compiled, run by CPython, or run in
float64.
"""

from typing import Any, NamedTuple

import numpy as np

from cutaway.ops.cpu.arrays import Activation, AttentionScratch, Doubles, Floats


class Model(NamedTuple):
    """Weights and sizes. A weight is a record ``ops.cpu.tiles.WEIGHT``; in the reference run, an object with dense
    float64.

    What differs between families is data here, read at run time.
    """

    embedding: Any  # [1] weight [V, D]
    layers: Any  # [L, 7] weights: q, k, v, output, gate, up, down
    attention_norm: Floats  # [L, D]
    ffn_norm: Floats  # [L, D]
    output_norm: Floats  # [D]
    head: Any  # [1] weight [V, D]
    inverse_frequencies: Doubles  # [Dh/2]
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_epsilon: np.float32
    rope_interleaved: bool


class Workspace(NamedTuple):
    """The buffers of a step, allocated once from the shape table; a step uses the first T (or O) rows of each."""

    x: Floats  # [T, D] the residual stream
    h: Floats  # [T, D] what a block reads from it or adds to it
    angles: Floats  # [T, Dh]
    activation: Activation  # [T, K] quantised input of the next matmul
    qkv: Floats  # [T, (H + 2 Hkv) Dh]
    attended: Floats  # [T, H Dh]
    gate_up: Floats  # [T, 2 F]
    gated: Floats  # [T, F]
    last: Floats  # [O, D]
    logits: Floats  # [O, V]
    scratch: AttentionScratch
