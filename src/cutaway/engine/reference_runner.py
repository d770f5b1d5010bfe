"""The reference way to run the forward: in float64 over NumPy, on the file's dequantised weights; the definition of
right.

In: an open model source, then batches. Out: float64 logits. It is slow, and made to be obvious: one context, no team.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from cutaway.engine.runner import choose_context
from cutaway.engine.steps import Tap
from cutaway.formats.source import ModelSource
from cutaway.memory.kv_setting import PAGE_LENGTH
from cutaway.memory.workspace import allocate_workspace
from cutaway.model.batch import check_batch
from cutaway.model.forward import rebind
from cutaway.model.reference import load_reference
from cutaway.model.shapes import Limits, dimensions
from cutaway.ops import reference
from cutaway.ops.cpu.arrays import Batch
from cutaway.ops.cpu.kv_tiles import SUBTILE


class ReferenceRunner:
    """A model in float64. Keys and values that were not written are NaN, so that reading one would show."""

    def __init__(self, source: ModelSource, *, context: int | None = None, max_tokens: int = 512) -> None:
        """context: positions at most; max_tokens: tokens, and rows of logits, of a step."""
        self.config, self._record = load_reference(source)
        self.context = choose_context(context, self.config)
        self.num_pages = -(-self.context // PAGE_LENGTH)
        self._limits = Limits(max_tokens, max_tokens, 1, self.context, self.num_pages * PAGE_LENGTH // SUBTILE)
        slots = (self.config.num_layers, self.num_pages * PAGE_LENGTH, self.config.num_kv_heads, self.config.head_dim)
        self._kv = reference.ReferenceKV(np.full(slots, np.nan), np.full(slots, np.nan), PAGE_LENGTH)
        self._workspace = allocate_workspace(dimensions(self.config, self._limits), np.float64)

    def step(self, batch: Batch, tap: Tap | None = None) -> npt.NDArray[np.float64]:
        """The logits [O, V] of the batch's output rows; ``tap(name, layer, array)`` after each operation."""
        check_batch(batch, self._limits, self.config.vocab_size, self.num_pages, PAGE_LENGTH)
        table = dict(reference.TABLE)
        if tap is not None:
            table["tap"] = lambda team, name, layer, array: tap(name, layer, array)
        rebind(table, "forward_reference")(None, self._record, batch, self._kv, self._workspace)
        logits: Any = self._workspace.logits[: len(batch.output_rows), : self.config.vocab_size]
        return np.array(logits)
