"""The memory plan of an engine with given settings, and what its runtime takes, measured.

In: a model source of which only the head is read, settings. Out: a ``MemoryPlan``.
"""

import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Final

from cutaway.engine.settings import EngineSettings
from cutaway.errors import CapacityError, CutawayError
from cutaway.formats.open_model import open_model
from cutaway.formats.source import ModelSource
from cutaway.memory.available import available_bytes
from cutaway.memory.kv_cache import position_bytes
from cutaway.memory.plan import MemoryPlan
from cutaway.memory.workspace import workspace_bytes
from cutaway.model.config import ModelConfig
from cutaway.model.loader import expected_tensors, matrices_of, memory_bytes, tile_format
from cutaway.model.shapes import Limits, dimensions
from cutaway.ops.cpu.kv_tiles import SUBTILE
from cutaway.sampling.row import SamplerScratch

PROMPT_ROWS: Final = 16
"""Rows of logits of a step at least: the logprobs of a prompt are computed from what the answers leave of them."""

RESIDENT: Final = "VmRSS"
MEASURE_SECONDS: Final = 1800.0
"""All kernels compile in a tenth of it on one slow core; a process that takes longer hangs."""
MEASURE: Final = (
    # As `python -m`, but without the working folder in front of the path: what lies there is not ours to run.
    "import runpy, sys; sys.path[:] = [entry for entry in sys.path if entry]; "
    "runpy.run_module('cutaway.engine.plan', run_name='__main__')"
)


def engine_limits(settings: EngineSettings, threads: int) -> Limits:
    """The limits by which an engine's workspace is allocated."""
    subtiles = settings.num_pages * settings.page_length // SUBTILE
    outputs = max(PROMPT_ROWS, settings.max_num_seqs)
    return Limits(settings.max_num_batched_tokens, outputs, threads, settings.context, subtiles)


def plan_memory(
    source: ModelSource, config: ModelConfig, settings: EngineSettings, threads: int, kv_dtype: str, runtime: int
) -> MemoryPlan:
    """The plan; runtime: bytes, as ``resident_bytes`` or ``measure_runtime`` have them."""
    sizes = dimensions(config, engine_limits(settings, threads))
    names = [name for name in expected_tensors(config) if name in source.tensors]
    return MemoryPlan(
        runtime=runtime,
        weights=sum(memory_bytes(source.tensors[name]) for name in names),
        workspace=workspace_bytes(sizes)
        + threads * sum(array.nbytes for array in SamplerScratch.allocate(config.vocab_size)),
        position=position_bytes(config, kv_dtype),
        page_length=settings.page_length,
        pages=settings.num_pages,
    )


def check_available(
    source: ModelSource, config: ModelConfig, settings: EngineSettings, threads: int, kv_dtype: str, given: str | None
) -> None:
    """Refuse what this machine has no memory for now: a system that promises more than it has would kill the process
    when the memory is first written to. given: the option that says how large the pool is, for the remedy; None where
    neither kv_tokens nor memory does. Raises CapacityError.
    """
    plan = plan_memory(source, config, settings, threads, kv_dtype, runtime=0)
    free = available_bytes()
    if plan.total > free:
        remedy = "Lower max_model_len or max_num_seqs, or give kv_tokens or memory"
        if given is not None:
            remedy = f"Lower {given}, max_model_len or max_num_seqs"
        raise CapacityError(
            f"weights take {plan.weights:,} bytes, the KV pool of {plan.tokens} tokens {plan.kv:,} and the workspace "
            f"{plan.workspace:,}, together {plan.total:,}; this machine has {free:,} available. {remedy}, "
            "or use a smaller model."
        )


def settings_within(
    limit: int, source: ModelSource, config: ModelConfig, settings: EngineSettings, threads: int, kv_dtype: str
) -> EngineSettings:
    """The settings with as large a KV pool as a process of ``limit`` bytes has room for, and the sequences can use.

    In this process, whose memory as it is now counts as the runtime. Raises CapacityError where a context doesn't fit.
    """
    plan = plan_memory(source, config, settings, threads, kv_dtype, resident_bytes())
    scratch = settings.num_pages - settings.num_blocks
    pages = plan.within(limit, settings.context, settings.max_num_seqs, scratch).pages
    return replace(settings, kv_tokens=pages * settings.page_length)


def resident_bytes(name: str = RESIDENT) -> int:
    """Memory of this process, as Linux counts it: "VmRSS" now, "VmHWM" at most so far."""
    status = Path("/proc/self/status")
    if not status.exists():
        raise CutawayError(f"{status} is missing: this system doesn't tell what a process takes. Linux does.")
    for line in status.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise CutawayError(f"{status} has no {name}. Linux tells it.")


def measure_runtime(path: Path, kv_dtype: str, threads: int) -> int:
    """Bytes of a process that has loaded all that an engine needs but weights, KV pool and workspace.

    Kernels that are not in the cache are compiled first, by another process: compiling takes memory that the next start
    doesn't take. Where they can't be kept, the compiler's memory is among the bytes, with a warning: there, each start
    takes it.
    """
    command = [sys.executable, "-c", MEASURE, str(path), kv_dtype, str(threads)]
    for _ in range(2):
        try:
            run = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MEASURE_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise CutawayError(
                f"the runtime's memory could not be measured within {MEASURE_SECONDS:g} s. Try again when the machine "
                "is less busy."
            ) from None
        if run.returncode != 0:
            raise CutawayError(f"the runtime's memory could not be measured: {run.stderr.strip()[-500:]}")
        compiled, size = map(int, run.stdout.split()[-2:])
        if compiled == 0:
            return size
    warnings.warn(
        f"{compiled} kernels were compiled again, since they could not be kept: the runtime's {size:,} bytes have the "
        "compiler in them. Set CUTAWAY_CACHE to a folder that can be written.",
        stacklevel=2,
    )
    return size


def _measure(path: Path, kv_dtype: str, threads: int) -> tuple[int, int]:
    """How many functions were compiled, and what this process takes then."""
    import cutaway.engine.llm  # noqa: F401  (an engine loads it)
    from cutaway.engine.compile import compile_for_any_model
    from cutaway.model.config import read_config
    from cutaway.ops.cpu.threads import ThreadTeam
    from cutaway.ops.kernel_cache import compilations, compile_all
    from cutaway.tokenizer.open_tokenizer import open_tokenizer

    compiled: list[str] = []
    with compilations(compiled.append), open_model(path) as source:
        compile_for_any_model(kv_dtype)
        config = read_config(source)
        matrices = matrices_of(source, config)
        tokenizer = open_tokenizer(source)
        tokenizer.encode("The quick brown fox")
        compile_all(kernel for name in matrices for kernel in tile_format(source, source.tensors[name]).kernels)
        team = ThreadTeam(threads)
        size = resident_bytes()
        team.close()
    return len(compiled), size


if __name__ == "__main__":
    # The process of ``measure_runtime``.
    print(*_measure(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
