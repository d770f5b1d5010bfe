"""A model for the reference run: the same file, dequantised.

In: an open model source. Out: a ``Model`` record whose weights are ``DenseWeight`` objects; each matrix is dequantised
when it is read.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from cutaway.formats.blocks import dequantize
from cutaway.formats.source import ModelSource
from cutaway.model.assemble import assemble
from cutaway.model.config import ModelConfig, read_config
from cutaway.model.loader import bias_of, check_tensors, position_rows_of, read_floats
from cutaway.model.records import Model
from cutaway.model.shapes import Part
from cutaway.ops.reference import DenseNorm, DenseWeight


def _array(items: Sequence[Any]) -> "np.ndarray[Any, Any]":
    """An array of objects; NumPy would otherwise unpack the named tuples."""
    array = np.empty(len(items), object)
    for index, item in enumerate(items):
        array[index] = item
    return array


def load_reference(source: ModelSource) -> tuple[ModelConfig, Model]:
    """The config and the record for ``rebind(ops.reference.TABLE)``. Matrices are kept in float32, which is exact."""
    config = read_config(source)
    check_tensors(source, config)

    @functools.cache
    def matrix(name: str) -> DenseWeight:
        tensor = source.tensors[f"{name}.weight"]
        numbers = dequantize(tensor.block_type, tensor.data)
        return DenseWeight(numbers, bias_of(source, name), tensor.block_type.name)

    def part_of(name: str, part: Part) -> DenseWeight:
        whole, rows = matrix(name), slice(part.first, part.first + part.rows)
        bias = None if whole.bias is None else whole.bias[rows]
        return whole._replace(matrix=whole.matrix[rows], bias=bias)

    def vector(name: str) -> Any:
        return read_floats(source, name).astype(np.float64) if name in source.tensors else None

    def norm(name: str | None) -> DenseNorm:
        return DenseNorm(vector(f"{name}.weight"), vector(f"{name}.bias"), config.norm_epsilon, config.layer_norm)

    rows = position_rows_of(source, config)
    record = assemble(config, part_of, norm, _array, rows, tied="output.weight" not in source.tensors)
    return config, record._replace(position_rows=record.position_rows.astype(np.float64))
