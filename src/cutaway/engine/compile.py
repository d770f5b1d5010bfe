"""Compile before the model is there: the forward and what every model needs, while its file is still being fetched.

In: nothing but the types that a step's arguments have. Out: compiled code in the cache.
"""

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

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
from cutaway.ops.arguments import make_argument
from cutaway.ops.cpu.calls import call_shared
from cutaway.ops.cpu.kv_tiles import KVCache
from cutaway.ops.cpu.norm import NORM
from cutaway.ops.cpu.team import Team
from cutaway.ops.cpu.threads import ThreadTeam
from cutaway.ops.cpu.tiles import TILE_FORMATS, WEIGHT, repack
from cutaway.ops.kernel_cache import Kernel, compile_all
from cutaway.ops.kernel_files import cache_is_shared
from cutaway.sampling.choose import choose_compiled
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, Row, arguments_of

LARGEST: Final = "attention"  # the operation that takes longest to compile
FORMATS_AHEAD: Final = ("Q4_1", "Q8_0")
"""Of the models that Cutaway fetches. The kernels of others are compiled when a file in them is opened."""
SECOND_PROCESS: Final = (
    # As `python -m`, but without the working folder in front of the path: what lies there is not ours to run.
    "import runpy, sys; sys.path[:] = [entry for entry in sys.path if entry]; "
    "runpy.run_module('cutaway.engine.compile', run_name='__main__')"
)


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


def operations() -> list[tuple[Any, tuple[Any, ...]]]:
    """The forward's operations, from a run that calls none of them, each with arguments as the forward calls it with:
    the one that takes longest first.
    """
    calls: dict[tuple[str, tuple[str, ...]], tuple[Any, ...]] = {}

    def recorder(name: str) -> Callable[..., None]:
        def record(*arguments: Any) -> None:
            calls.setdefault((name, tuple(make_argument(each).type for each in arguments)), arguments)

        return record

    names = set(forward_module.forward.__code__.co_names) & set(ops.cpu.__all__)
    ignore = {"tap": lambda *arguments: None}
    rebind({name: recorder(name) for name in names} | ignore)(*step_arguments())
    found = sorted(calls.items(), key=lambda call: call[0][0] != LARGEST)
    return [(getattr(ops.cpu, name), arguments) for (name, _), arguments in found]


def compile_for_any_model(kv_dtype: str = "f16") -> None:
    """Compile, or find in the cache, the forward, the sampler, the KV kernels and those of the formats fetched.

    Numba compiles one function at a time in a process. So on first use a second process compiles into the same cache:
    it takes the sampler and the kernels called by address, then operations, the last of the list first; this one takes
    operations, the first of the list first, until all are there, then the forward, which is made of them, and then what
    is left of the kernels, the last first.
    """
    forward: Any = forward_compiled
    step = step_arguments()
    is_python = sys.executable and not getattr(sys, "frozen", False)  # a frozen program would start itself
    if is_python and cache_is_shared() and not forward.is_kept(*step):
        with subprocess.Popen(
            [sys.executable, "-c", SECOND_PROCESS],
            stdin=subprocess.PIPE,  # nobody writes to it: its end tells the second process that this one has died
            stdout=subprocess.DEVNULL,  # not ours: whoever reads it would wait for the second process, too
            stderr=subprocess.DEVNULL,
        ) as second:
            try:
                with _no_collection():
                    _compile_missing(operations())
                    forward.prepare(*step)
                    compile_all(reversed(kernels_ahead()))
                second.wait()
            except BaseException:
                second.kill()
                raise
    forward.prepare(*step)
    compile_all(kv_format(kv_dtype).kernels)
    _sample_nothing()


def kernels_ahead() -> list[Kernel]:
    """The kernels called by address that every model of those fetched needs."""
    formats = [kernel for name in FORMATS_AHEAD for kernel in TILE_FORMATS[name].kernels]
    return [*formats, *kv_format("f16").kernels]


@contextmanager
def _no_collection() -> Iterator[None]:
    """No collection of garbage meanwhile: nearly all that a compiler makes lives until it ends, and to look through it
    again and again takes a tenth of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _compile_missing(work: Iterable[tuple[Any, tuple[Any, ...]]]) -> None:
    """Compile, in this order, the parts that no process has put into the cache by then."""
    from cutaway.ops.compiler import part, types_of  # here: a process that finds all in the cache has no use for Numba

    for function, arguments in work:
        types = types_of(arguments)
        if not part(function).is_kept(types):
            part(function).result(types)


def _sample_nothing() -> None:
    """Compile the sampler and the check of batches by using them once."""
    check_batch(make_batch([Piece(0, [0], [0])]), Limits(1, 1, 1, 16, 1), 1, 1, 16)
    row = Row(np.zeros(64, np.float32), SamplingParams(), NoiseKey(0, 0, 0))
    team = ThreadTeam(1)
    call_shared(choose_compiled, [arguments_of(row, SamplerScratch.allocate(64))], team)


def _repack_nothing() -> None:
    """Compile the repacking of weights by using it once."""
    layout = TILE_FORMATS[FORMATS_AHEAD[0]]
    source = np.zeros((1, layout.block_type.bytes_per_block), np.uint8)
    repack(layout, source, np.zeros((1, layout.block_bytes), np.uint8))


if __name__ == "__main__":
    # The second process of ``compile_for_any_model``.
    threading.Thread(target=leave_with_parent, daemon=True).start()
    with _no_collection():
        _sample_nothing()
        _repack_nothing()
        compile_all(kernels_ahead())
        _compile_missing(reversed(operations()))
