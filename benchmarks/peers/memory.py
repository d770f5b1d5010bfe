"""Peak memory: a process for each engine that loads the model, computes a prompt of 512 tokens and an answer of 64, and
says what it took at most, beside what it must take.

In: contestants. Out: for each the peak, the bytes of its file and of keys and values, and what is left; or why not.
"""

from collections.abc import Callable, Sequence
from typing import Any

from cutaway.audit.llama_cpp_process import CannotRunError
from peers.contestants import Contestant
from peers.workloads import MEMORY_WORKLOAD, positions_of


def measure_memory(
    taking_part: Sequence[Contestant],
    threads: int,
    prompt: list[int],
    kv_bytes: int,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, dict[str, Any]]:
    """One after the other. kv_bytes: of the positions of the workload."""
    found: dict[str, dict[str, Any]] = {}
    for each in taking_part:
        progress(f"peak memory: {each.name}")
        try:
            with each.start(threads, positions_of(MEMORY_WORKLOAD)) as process:
                process.measure([prompt], MEMORY_WORKLOAD.new_tokens)
                peak = process.peak_bytes
            if peak is None:
                raise CannotRunError("the system doesn't say what a process has taken")
        except CannotRunError as reason:
            found[each.name] = {"cannot": str(reason)}
            continue
        file = each.model.stat().st_size
        found[each.name] = {
            "peak_bytes": peak,
            "file_bytes": file,
            "kv_bytes": kv_bytes,
            "beyond": peak - file - kv_bytes,
        }
    return found
