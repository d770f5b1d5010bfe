"""The workspace, allocated once from the shape table; nothing is allocated in a step.

In: the dimensions of a model and of the engine. Out: ``records.Workspace``.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from cutaway.model.records import Workspace
from cutaway.model.shapes import BUFFERS
from cutaway.ops.cpu.arrays import Activation, AttentionScratch
from cutaway.ops.cpu.memory import Arena, aligned


def workspace_bytes(dimensions: Mapping[str, int]) -> int:
    """What ``allocate_workspace`` takes, but for what aligns its buffers."""
    return sum(row.nbytes(dimensions) for row in BUFFERS)


def allocate_workspace(dimensions: Mapping[str, int], float_type: type[np.floating[Any]] = np.float32) -> Workspace:
    """All buffers, zeroed, each at a multiple of 64 bytes.

    With float64 (the reference run), every buffer is float64: its activations are not quantised.
    """
    types = {row.name: np.dtype(row.dtype if float_type is np.float32 else float_type) for row in BUFFERS}
    sizes = {row.name: math.prod(row.size(dimensions)) * types[row.name].itemsize for row in BUFFERS}
    arena = Arena(sum(aligned(size) for size in sizes.values()))
    flat = {
        row.name: arena.take(sizes[row.name]).view(types[row.name]).reshape(row.size(dimensions)) for row in BUFFERS
    }
    activation = Activation(**{field: flat.pop(f"activation.{field}") for field in Activation._fields})
    scratch = AttentionScratch(**{field: flat.pop(f"scratch.{field}") for field in AttentionScratch._fields})
    return Workspace(**flat, activation=activation, scratch=scratch)
