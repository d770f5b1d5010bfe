"""The companion: a whole reference run in float64 that goes step by step with the engine's.

In: the engine's workspace and, after each of its operations, that operation as the shadow saw it. Out: the same
operation by definition, over buffers of the companion's own: its inputs are its own earlier results, so that the
distance between the two runs is all that the engine has lost so far.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cutaway.audit.parity.definition import GIVEN
from cutaway.audit.parity.shadow import Call
from cutaway.memory.workspace import allocate_workspace
from cutaway.model.config import ModelConfig
from cutaway.model.records import Workspace
from cutaway.ops import reference
from cutaway.ops.cpu.arrays import Activation
from cutaway.ops.cpu.kv_tiles import KVCache

Array = npt.NDArray[Any]


class Companion:
    """Buffers in float64 beside those of a workspace, and keys and values beside a pool of as many slots."""

    def __init__(
        self,
        config: ModelConfig,
        sizes: Mapping[str, int],
        work: Workspace,
        num_pages: int,
        page_length: int,
    ) -> None:
        """sizes: by which ``work`` was allocated."""
        own = allocate_workspace(sizes, np.float64)
        # A step's arrays are the first rows of a buffer, so that an address says which; but an empty one has its
        # neighbour's.
        self._buffers = {
            int(array.ctypes.data): getattr(own, name)
            for name, array in work._asdict().items()
            if isinstance(array, np.ndarray) and array.size
        }
        self._activation: Activation = own.activation
        slots = (config.num_layers, num_pages * page_length, config.num_kv_heads, config.head_dim)
        self._kv = reference.ReferenceKV(np.full(slots, np.nan), np.full(slots, np.nan), page_length)

    def apply(self, call: Call) -> tuple[Any, ...]:
        """Run the operation; its arguments, the companion's own."""
        own = tuple(
            self._own(argument) if constant is GIVEN else constant
            for argument, constant in zip(call.arguments, call.defined, strict=True)
        )
        reference.TABLE[call.operation](None, *own)
        return own

    def _own(self, argument: Any) -> Any:
        if isinstance(argument, KVCache):
            return self._kv
        if isinstance(argument, Activation):
            return self._activation
        if isinstance(argument, np.ndarray) and argument.dtype == np.float32 and argument.size:
            return self._buffers[int(argument.ctypes.data)][: len(argument)]
        return argument
