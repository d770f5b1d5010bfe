"""The machine's limits, measured: streaming reads, int8 dot products, float32 multiply-adds, AMX where it is used.

In: a team. Out: ``MachineLimits``: rates with their spread, and the probes' parameters. Each probe is compiled code,
repeated for a fixed short time with a barrier at both ends. Neighbours on the machine make repetitions slower and none
faster, so the best one is the limit; median and worst show how quiet the machine was.
"""

import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from cutaway.errors import InvalidRequestError
from cutaway.ops.cpu import probes
from cutaway.ops.cpu.clock import read_clocks, seconds_per_cycle
from cutaway.ops.cpu.matmul import LEAST_ROWS
from cutaway.ops.cpu.memory import HUGE_PAGE, Arena
from cutaway.ops.cpu.threads import ThreadTeam
from cutaway.ops.simd.lowering import LOWERING
from cutaway.ops.simd.registers import LANES, REGISTER_BYTES

STREAM_BYTES: Final = 128 << 20  # several times a last-level cache of 32 MB
PROBE_SECONDS: Final = 0.3  # for each probe
LEAST_REPEATS: Final = 5
DOT_PASSES: Final = 4000  # about 2 ms
FMA_PASSES: Final = 60000
MATRIX_PASSES: Final = 60000


@dataclass(frozen=True)
class Rate:
    """Repeated measurements of one rate, in bytes or operations per second."""

    best: float
    median: float
    worst: float
    repeats: int

    @classmethod
    def of(cls, amount: int, seconds: list[float]) -> "Rate":
        """The rates of handling ``amount`` in each of these times."""
        return cls(amount / min(seconds), amount / statistics.median(seconds), amount / max(seconds), len(seconds))


@dataclass(frozen=True)
class MachineLimits:
    """The measured limits of a team on this machine, and how they were measured."""

    threads: int
    lowering: str
    stream_bytes: int  # read in each repetition
    huge_page_bytes: int | None  # of them, how many lay in huge pages; None where the system doesn't say
    probe_seconds: float
    stream: Rate  # bytes/s
    int8: Rate  # operations/s, a multiply-add is two
    float32: Rate  # operations/s, a fused multiply-add is two
    amx: Rate | None = None  # int8 operations/s with full matrix registers; None where the lowering has none

    def of_products(self, rows: int) -> tuple[str, Rate]:
        """The limit of matrix products of so many rows of activations, "int8" or "amx", which few rows don't use."""
        return ("int8", self.int8) if self.amx is None or rows < LEAST_ROWS else ("amx", self.amx)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def huge_page_bytes(address: int, size: int, smaps: str) -> int | None:
    """Bytes in huge pages of the mapping that holds ``address``, at most ``size``; None if the system doesn't say.

    smaps: the text of /proc/self/smaps, where neighbouring blocks of memory can share a mapping.
    """
    inside = False
    for line in smaps.splitlines():
        head, _, rest = line.partition(" ")
        first, dash, last = head.partition("-")
        if dash and not head.endswith(":"):
            inside = int(first, 16) <= address < int(last, 16)
        elif inside and head == "AnonHugePages:":
            return min(size, int(rest.split()[0]) * 1024)
    return None


def _smaps() -> str:
    """The system's account of this process's memory, or nothing where it keeps none."""
    if platform.system() != "Linux":
        return ""
    with open("/proc/self/smaps", encoding="utf-8") as file:
        return file.read()


def _repeat(step: Callable[[], int], seconds: float) -> list[int]:
    """What ``step`` returns, again and again for so long, at least LEAST_REPEATS times; after one to warm up."""
    step()
    results: list[int] = []
    end = time.perf_counter() + seconds
    while len(results) < LEAST_REPEATS or time.perf_counter() < end:
        results.append(step())
    return results


def measure_limits(
    team: ThreadTeam, stream_bytes: int = STREAM_BYTES, probe_seconds: float = PROBE_SECONDS
) -> MachineLimits:
    """Measure. Takes ``probe_seconds`` for each limit, and ``stream_bytes`` of memory while it does.

    Raises CapacityError where that memory can't be had.
    """
    unit = probes.STREAM_STEP * team.size
    if stream_bytes < unit:
        raise InvalidRequestError(
            f"stream_bytes is {stream_bytes}; {team.size} threads need {unit} at least.", "stream_bytes"
        )
    whole = stream_bytes // unit * unit
    stream = Arena(max(whole, HUGE_PAGE)).take(whole)
    stream[:] = 1  # memory that was never written is one page of zeros
    operands = np.full(probes.DOT_LINES * probes.PRODUCTS + probes.DOT_ROWS * 4, 3, np.uint8)
    weights = int(operands.ctypes.data)
    activations = weights + probes.DOT_LINES * probes.PRODUCTS
    matrices = np.full(4 * REGISTER_BYTES, 3, np.int8)
    sink = np.zeros((team.size, max(probes.DOT_ROWS, probes.FMA_ROWS, probes.SUMS * LANES) * LANES), np.int32)
    elapsed = np.zeros(1, np.int64)

    def probe(function: Callable[..., None], *arguments: Any) -> Callable[[], int]:
        def step() -> int:
            team.run(function, *arguments, sink, elapsed)
            return int(elapsed[0])

        return step

    # Compiled before the team runs it: see ThreadTeam.run.
    alone = ThreadTeam(1)
    work: list[tuple[Callable[..., None], tuple[Any, ...], tuple[Any, ...]]] = [
        (probes.stream_read, (int(stream.ctypes.data), probes.STREAM_STEP), (int(stream.ctypes.data), whole)),
        (probes.dot_products, (weights, activations, 1), (weights, activations, DOT_PASSES)),
        (probes.multiply_adds, (1, np.float32(0.5)), (FMA_PASSES, np.float32(0.5))),
    ]
    if LOWERING == "amx":
        address = int(matrices.ctypes.data)
        work.append((probes.matrix_products, (address, 1), (address, MATRIX_PASSES)))
    for function, small, _ in work:
        alone.run(function, *small, sink, elapsed)
    alone.close()

    begin = read_clocks()
    measured = [_repeat(probe(function, *large), probe_seconds) for function, _, large in work]
    period = seconds_per_cycle(begin, read_clocks())
    dots = team.size * DOT_PASSES * probes.DOT_LINES * probes.DOT_ROWS * probes.PRODUCTS
    fmas = team.size * FMA_PASSES * probes.FMA_ROWS * LANES
    products = team.size * MATRIX_PASSES * probes.SUMS * probes.MATRIX_PRODUCTS
    stream_rate, int8, float32, *amx = (
        Rate.of(amount, [count * period for count in counts])
        for amount, counts in zip((whole, 2 * dots, 2 * fmas, 2 * products), measured, strict=False)
    )
    return MachineLimits(
        threads=team.size,
        lowering=LOWERING,
        stream_bytes=whole,
        huge_page_bytes=huge_page_bytes(int(stream.ctypes.data), whole, _smaps()),
        probe_seconds=probe_seconds,
        stream=stream_rate,
        int8=int8,
        float32=float32,
        amx=amx[0] if amx else None,
    )
