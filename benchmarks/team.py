"""The team of ordinary threads against Numba's own parallel loop and against one thread, on decode steps of a model.

    python benchmarks/team.py [MODEL] [--threads 2] [--rounds 12] [--steps 30] [--busy 1]

In: a model. Out: milliseconds a step of each way, interleaved in rounds: mean, median, 90th percentile and least;
first alone, then beside ``--busy`` neighbours, processes that do nothing but use a core.
"""

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numba
import numpy as np

from cutaway.engine.runner import ModelRunner
from cutaway.formats.gguf import open_gguf
from cutaway.hub.resolve import resolve
from cutaway.model.batch import Piece, make_batch
from cutaway.model.forward import forward_compiled
from cutaway.model.records import Workspace
from cutaway.ops.cpu.arrays import Batch, Floats
from cutaway.ops.cpu.team import Team
from cutaway.ops.cpu.threads import ThreadTeam


class Buffers(NamedTuple):
    """``Workspace`` without the records in it: Numba's parallel loop takes no record within a record."""

    x: Floats
    h: Floats
    angles: Floats
    qkv: Floats
    attended: Floats
    gate_up: Floats
    gated: Floats
    last: Floats
    logits: Floats


@numba.njit(nogil=True, parallel=True, error_model="numpy")
def parallel_loop(size, shared, model, batch, kv, b, activation, panels, scratch):  # type: ignore[no-untyped-def]
    """A step as one parallel region: each of its iterations is a member of the team."""
    for rank in numba.prange(size):
        work = Workspace(
            b.x, b.h, b.angles, activation, panels, b.qkv, b.attended, b.gate_up, b.gated, b.last, b.logits, scratch
        )
        forward_compiled(Team(np.int64(rank), size, shared, 0), model, batch, kv, work)


@contextlib.contextmanager
def neighbours(count: int) -> Iterator[None]:
    """So many processes that use a core each, while the block runs."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--busy", type=int, default=1)
    options = parser.parse_args()
    numba.set_num_threads(options.threads)
    with open_gguf(resolve(options.model).path) as gguf:
        runner = ModelRunner(gguf, threads=options.threads, context=512)
    pages = range(runner.kv.num_pages)
    runner.step(make_batch([Piece(0, list(range(300, 428)), pages)]))
    alone = ThreadTeam(1)
    shared = runner.team.members()[0].shared
    arguments = (runner.loaded.record, runner.kv.record, runner.workspace)

    def threads(batch: Batch) -> None:
        runner.step(batch)

    def loop(batch: Batch) -> None:
        work = runner.workspace
        buffers = Buffers(*(getattr(work, field) for field in Buffers._fields))
        tables = (arguments[0], batch, arguments[1], buffers)
        parallel_loop(options.threads, shared, *tables, work.activation, work.panels, work.scratch)

    def one(batch: Batch) -> None:
        alone.run(forward_compiled, arguments[0], batch, arguments[1], arguments[2])

    ways: dict[str, Callable[[Batch], None]] = {"team of threads": threads, "parallel loop": loop, "one thread": one}
    batches = [make_batch([Piece(128 + i, [500 + i], pages)]) for i in range(options.steps)]
    logits = {}
    for name, way in ways.items():
        way(batches[0])
        logits[name] = runner.workspace.logits[0].copy()
    expected = logits["one thread"].view(np.int32)
    for name, row in logits.items():
        print(f"{name:16s} same bits: {(row.view(np.int32) == expected).all()}")
    for busy in (0, options.busy):
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        with neighbours(busy):
            for _ in range(options.rounds):
                for name, way in ways.items():
                    for batch in batches:
                        begin = time.perf_counter()
                        way(batch)
                        seconds[name].append(time.perf_counter() - begin)
        print(f"{busy} busy neighbours")
        for name, times in seconds.items():
            ms = 1e3 * np.array(times)
            print(
                f"  {name:16s} mean {ms.mean():.2f} ms  median {np.median(ms):.2f}  "
                f"p90 {np.percentile(ms, 90):.2f}  min {ms.min():.2f}"
            )


if __name__ == "__main__":
    main()
