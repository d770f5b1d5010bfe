"""Compile before the model is there: the forward and what every model needs, while its file is still being fetched.

In: nothing but the types that a step's arguments have. Out: compiled code in the cache; a listener hears of each
kernel.
"""

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numba import typeof
from numba.core import event

from cutaway import ops
from cutaway.hub.pip_process import leave_with_parent
from cutaway.memory.kv_cache import kv_format
from cutaway.memory.workspace import allocate_workspace
from cutaway.model import forward as forward_module
from cutaway.model.assemble import assemble
from cutaway.model.batch import Piece, check_batch, make_batch
from cutaway.model.config import ModelConfig
from cutaway.model.forward import forward_compiled, rebind
from cutaway.model.positions import Rope
from cutaway.model.shapes import Limits, dimensions
from cutaway.ops.cpu.kv_tiles import KVCache
from cutaway.ops.cpu.norm import NORM
from cutaway.ops.cpu.team import Team
from cutaway.ops.cpu.threads import float_environment
from cutaway.ops.cpu.tiles import TILE_FORMATS, WEIGHT, repack
from cutaway.ops.kernel_cache import compile_all, is_kept
from cutaway.ops.kernel_files import cache_is_shared
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, sample_row

LARGEST: Final = "attention"  # the operation that takes longest to compile
FORMATS_AHEAD: Final = ("Q4_1", "Q8_0")
"""Of the models that Cutaway fetches. The kernels of others are compiled when a file in them is opened."""
SECOND_PROCESS: Final = (
    # As `python -m`, but without the working folder in front of the path: what lies there is not ours to run.
    "import runpy, sys; sys.path[:] = [entry for entry in sys.path if entry]; "
    "runpy.run_module('cutaway.engine.compile', run_name='__main__')"
)


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
    config = ModelConfig(
        name="",
        architecture="",
        context_length=64,
        num_layers=1,
        width=32,
        num_heads=2,
        num_kv_heads=1,
        head_dim=16,
        ffn_width=32,
        vocab_size=32,
        tensors=(),
        norm_epsilon=1e-5,
        layer_norm=False,
        activation="silu",
        gated=True,
        ropes=(Rope(10_000.0, 16),),
        rope_of_layer=(0,),
        rope_interleaved=True,
        windows=(0,),
        attention_scale=0.25,
    )
    model = assemble(
        config,
        weight=lambda name, part: np.zeros((), WEIGHT)[()],
        norm=lambda name: np.zeros((), NORM)[()],
        array=lambda items: np.array(items, items[0].dtype),
        position_rows=None,
        tied=True,
    )
    batch = make_batch([Piece(0, [0], [0])])
    kv = KVCache(*[0] * len(KVCache._fields))
    workspace = allocate_workspace(dimensions(config, Limits(1, 1, 1, 64, 4)))
    return Team(0, 1, 0, 0), model, batch, kv, workspace


def _types(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numba's types of the arguments."""
    return tuple(typeof(argument) for argument in arguments)  # type: ignore[no-untyped-call]


def operation_signatures() -> dict[str, set[tuple[Any, ...]]]:
    """The types with which the forward calls each of its operations, from a run that calls none of them."""
    signatures: dict[str, set[tuple[Any, ...]]] = {}

    def recorder(name: str) -> Callable[..., None]:
        def record(*arguments: Any) -> None:
            signatures.setdefault(name, set()).add(_types(arguments))

        return record

    names = set(forward_module.forward.__code__.co_names) & set(ops.cpu.__all__)
    ignore = {"tap": lambda *arguments: None}
    rebind({name: recorder(name) for name in names} | ignore)(*step_arguments())
    return signatures


def compile_for_any_model(kv_dtype: str = "f16") -> None:
    """Compile, or find in the cache, the forward, the sampler, the KV kernels and those of the formats fetched.

    Numba compiles one function at a time in a process. So on first use a second process compiles into the same cache:
    it takes the sampler and the kernels called by address, then operations, the last of the list first; this one takes
    operations, the first of the list first, until all are there, and then the forward, which is made of them.
    """
    forward: Any = forward_compiled
    step = _types(step_arguments())
    if sys.executable and cache_is_shared() and not is_kept(forward, step):
        with subprocess.Popen(
            [sys.executable, "-c", SECOND_PROCESS],
            stdin=subprocess.PIPE,  # nobody writes to it: its end tells the second process that this one has died
            stdout=subprocess.DEVNULL,  # not ours: whoever reads it would wait for the second process, too
            stderr=subprocess.DEVNULL,
        ) as second:
            try:
                _compile_missing(operations())
                forward.compile(step)
                second.wait()
            except BaseException:
                second.kill()
                raise
    forward.compile(step)
    compile_all(kv_format(kv_dtype).kernels)
    _sample_nothing()


def operations() -> list[tuple[Any, tuple[Any, ...]]]:
    """The compiled operations, each with the types that the forward calls it with: the one that takes longest first."""
    found = [(name, types) for name, signatures in operation_signatures().items() for types in signatures]
    found.sort(key=lambda operation: operation[0] != LARGEST)
    return [(getattr(ops.cpu, name), types) for name, types in found]


def _compile_missing(work: Iterable[tuple[Any, tuple[Any, ...]]]) -> None:
    """Compile, in this order, what no process has put into the cache by then."""
    for function, types in work:
        if not is_kept(function, types):
            function.compile(types)


def _sample_nothing() -> None:
    """Compile the sampler and the check of batches by using them once."""
    check_batch(make_batch([Piece(0, [0], [0])]), Limits(1, 1, 1, 16, 1), 1, 1, 16)
    with float_environment():
        sample_row(np.zeros(64, np.float32), SamplingParams(), NoiseKey(0, 0, 0), SamplerScratch.allocate(64))


def _repack_nothing() -> None:
    """Compile the repacking of weights by using it once."""
    layout = next(iter(TILE_FORMATS.values()))
    source = np.zeros((1, layout.block_type.bytes_per_block), np.uint8)
    repack(layout, source, np.zeros((1, layout.block_bytes), np.uint8))


if __name__ == "__main__":
    # The second process of ``compile_for_any_model``.
    threading.Thread(target=leave_with_parent, daemon=True).start()
    gc.disable()  # it ends soon, and all that it makes lives until then
    _sample_nothing()
    _repack_nothing()
    compile_all(kernel for name in FORMATS_AHEAD for kernel in TILE_FORMATS[name].kernels)
    compile_all(kv_format("f16").kernels)
    _compile_missing(reversed(operations()))
