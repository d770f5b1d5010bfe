"""A model for the reference run: the same file, dequantised.

In: an open GGUF. Out: a ``Model`` record whose weights are ``DenseWeight`` objects; each matrix is dequantised when it
is read.
"""

from typing import Any

import numpy as np

from cutaway.formats.blocks import dequantize
from cutaway.formats.gguf import GGUFFile
from cutaway.model.config import ModelConfig, read_config
from cutaway.model.loader import bias_of, check_tensors, read_vector
from cutaway.model.positions import inverse_frequencies
from cutaway.model.records import Model
from cutaway.model.shapes import LAYER_MATRICES
from cutaway.ops.reference import DenseWeight


def _weights(items: list[DenseWeight], shape: tuple[int, ...]) -> "np.ndarray[Any, Any]":
    """An array of objects; NumPy would otherwise unpack the named tuples."""
    array = np.empty(len(items), object)
    array[:] = [None] * len(items)
    for index, item in enumerate(items):
        array[index] = item
    return array.reshape(shape)


def load_reference(gguf: GGUFFile) -> tuple[ModelConfig, Model]:
    """The config and the record for ``rebind(ops.reference.TABLE)``. Matrices are kept in float32, which is exact."""
    config = read_config(gguf)
    check_tensors(gguf, config)

    def matrix(name: str) -> DenseWeight:
        tensor = gguf.tensors[name]
        return DenseWeight(dequantize(tensor.block_type, tensor.data), bias_of(gguf, name))

    def vector(name: str) -> Any:
        return read_vector(gguf, name).astype(np.float64)

    layers = [matrix(f"blk.{l}.{name}.weight") for l in range(config.num_layers) for name in LAYER_MATRICES]
    embedding = matrix("token_embd.weight")
    head = matrix("output.weight") if "output.weight" in gguf.tensors else embedding
    record = Model(
        embedding=_weights([embedding], (1,)),
        layers=_weights(layers, (config.num_layers, len(LAYER_MATRICES))),
        attention_norm=np.stack([vector(f"blk.{l}.attn_norm.weight") for l in range(config.num_layers)]),
        ffn_norm=np.stack([vector(f"blk.{l}.ffn_norm.weight") for l in range(config.num_layers)]),
        output_norm=vector("output_norm.weight"),
        head=_weights([head], (1,)),
        inverse_frequencies=inverse_frequencies(config.rope_base, config.head_dim),
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        norm_epsilon=np.float32(config.norm_epsilon),
        rope_interleaved=config.rope_interleaved,
    )
    return config, record
