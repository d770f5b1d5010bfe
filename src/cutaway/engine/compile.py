"""Compile before the model is there: the forward and what every model needs, while its file is still being fetched.

In: nothing but the types that a step's arguments have. Out: compiled code in the cache; a listener hears of each kernel.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba import typeof
from numba.core import event

from cutaway.memory.kv_cache import kv_format
from cutaway.memory.workspace import allocate_workspace
from cutaway.model.batch import Piece, make_batch
from cutaway.model.config import ModelConfig
from cutaway.model.forward import forward_compiled
from cutaway.model.positions import inverse_frequencies
from cutaway.model.records import Model
from cutaway.model.shapes import LAYER_MATRICES, Limits, dimensions
from cutaway.ops.cpu.kv_tiles import KVCache
from cutaway.ops.cpu.team import Team
from cutaway.ops.cpu.tiles import WEIGHT
from cutaway.ops.kernel_cache import compile_all


class _Listener(event.Listener):
    def __init__(self, heard: Callable[[str], None]) -> None:
        self._heard = heard

    def on_start(self, event: Any) -> None:
        dispatcher = event.data.get("dispatcher")
        self._heard(getattr(dispatcher, "__name__", "kernel"))

    def on_end(self, event: Any) -> None:
        """Numba asks for both."""


@contextmanager
def compilations(heard: Callable[[str], None]) -> Iterator[None]:
    """``heard(name)`` for each function that is compiled, not loaded from the cache, while the block runs."""
    with event.install_listener("numba:compile", _Listener(heard)):
        yield


def step_arguments() -> tuple[Any, ...]:
    """Arguments of a step, of the right types and without content."""
    config = ModelConfig("", "llama", 64, 1, 32, 2, 1, 16, 32, 32, 10000.0, True, 1e-5)
    weights = np.zeros((1, len(LAYER_MATRICES)), WEIGHT)
    norms = np.zeros((1, 32), np.float32)
    model = Model(
        embedding=weights[0, :1].copy(),
        layers=weights,
        attention_norm=norms,
        ffn_norm=norms,
        output_norm=norms[0],
        head=weights[0, :1].copy(),
        inverse_frequencies=inverse_frequencies(10000.0, 16),
        num_layers=1,
        num_heads=2,
        num_kv_heads=1,
        head_dim=16,
        norm_epsilon=np.float32(1e-5),
        rope_interleaved=True,
    )
    batch = make_batch([Piece(0, [0], [0])])
    kv = KVCache(*[0] * len(KVCache._fields))
    workspace = allocate_workspace(dimensions(config, Limits(1, 1, 1, 64, 4)))
    return Team(0, 1, 0, 0), model, batch, kv, workspace


def compile_for_any_model(kv_dtype: str = "f16") -> None:
    """Compile, or find in the cache, the forward and the KV kernels; a model's weight formats follow when it is loaded."""
    compile_all(kv_format(kv_dtype).kernels)
    signature = tuple(typeof(argument) for argument in step_arguments())
    dispatcher: Any = forward_compiled
    dispatcher.compile(signature)
