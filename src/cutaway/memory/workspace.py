"""The workspace, allocated once from the shape table; nothing is allocated in a step.

In: the dimensions of a model and of the engine. Out: ``records.Workspace``.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cutaway.model.records import Workspace
from cutaway.model.shapes import BUFFERS, Row
from cutaway.ops.cpu.arrays import Activation, AttentionScratch
from cutaway.ops.cpu.tiles.layout import TILE_ROWS


def allocate_workspace(dimensions: Mapping[str, int], float_type: type[np.floating[Any]] = np.float32) -> Workspace:
    """All buffers, zeroed. With float64 (the reference run), every buffer is float64: its activations are not
    quantised.
    """

    def buffer(row: Row) -> "np.ndarray[Any, Any]":
        shape = row.size(dimensions)
        dtype = np.dtype(row.dtype) if float_type is np.float32 else np.dtype(float_type)
        if row.name != "logits":
            return np.zeros(shape, dtype)
        # A last, partial tile of a matrix writes whole tiles: rows of logits lie a multiple of 16 apart. No other row
        # does: strided buffers would be another type to the compiled forward, which would be compiled anew.
        padded = (*shape[:-1], -(-shape[-1] // TILE_ROWS) * TILE_ROWS)
        return np.zeros(padded, dtype)[..., : shape[-1]]

    flat = {row.name: buffer(row) for row in BUFFERS}
    activation = Activation(**{field: flat.pop(f"activation.{field}") for field in Activation._fields})
    scratch = AttentionScratch(**{field: flat.pop(f"scratch.{field}") for field in AttentionScratch._fields})
    return Workspace(**flat, activation=activation, scratch=scratch)
