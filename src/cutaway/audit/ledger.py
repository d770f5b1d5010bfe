"""The ledger of a step: for each operation its calls, what it computes and moves, its time, and how near it comes to
the machine's limits.

In: a runner, a batch, the measured limits. Out: a ``Ledger``, whose rows' times add up to the timed step's exactly; the
closed step, measured in the same run, is kept beside it.

The timed step is the closed one with a time stamp after each operation. The stamps have no names: an operation's name
is that of the tap in the same place of a dry run, in which the forward runs over operations that do nothing.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cutaway.audit.costs import Cost, step_costs, works_of
from cutaway.audit.limits import MachineLimits
from cutaway.engine.runner import ModelRunner
from cutaway.errors import InvalidRequestError
from cutaway.model.dry_run import shown_by_step
from cutaway.model.records import Model, Workspace
from cutaway.ops.cpu.arrays import Batch
from cutaway.ops.cpu.clock import Clocks, read_clocks, seconds_per_cycle

HANDOVER: Final = "handover"
"""The first row: from the caller's call until all threads have the step."""

LEAST_REPEATS: Final = 5

TapName = tuple[str, int]  # tap, layer


@dataclass(frozen=True)
class LedgerRow:
    """One operation, all its calls in the step together."""

    name: str
    calls: int
    shape: str
    int8_operations: int
    flops: int
    weight_bytes: int
    kv_bytes: int
    activation_bytes: int
    seconds: float
    bound: str  # the limit that binds: "memory", "int8", "amx", "float32", or "" where nothing is counted
    bound_seconds: float  # the least time that this limit allows

    @property
    def bytes(self) -> int:
        """All bytes."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes


@dataclass(frozen=True)
class Ledger:
    """The median timed step of several, operation by operation, and the closed steps measured in turn with them."""

    tokens: int
    context: int  # positions that the last token attends
    rows: tuple[LedgerRow, ...]
    closed_seconds: tuple[float, ...]  # of each closed step, in ascending order
    limits: MachineLimits

    @property
    def seconds(self) -> float:
        """The timed step's time: the sum of its rows."""
        return sum(row.seconds for row in self.rows)

    @property
    def closed_median(self) -> float:
        """Seconds."""
        return statistics.median(self.closed_seconds)

    @property
    def deviation(self) -> float:
        """By how much the rows' sum differs from the closed step, relative to the closed step."""
        return self.seconds / self.closed_median - 1

    @property
    def tokens_per_second(self) -> tuple[float, float, float]:
        """Tokens computed per second by closed steps: slowest, median, fastest."""
        return (
            self.tokens / self.closed_seconds[-1],
            self.tokens / self.closed_median,
            self.tokens / self.closed_seconds[0],
        )

    @property
    def streamed_bytes(self) -> int:
        """Weights and KV that the step reads and writes: what can't stay in a cache from step to step."""
        return sum(row.weight_bytes + row.kv_bytes for row in self.rows)

    @property
    def streaming_limit(self) -> float:
        """Tokens per second if the step took as long as streaming its weights and KV once."""
        return self.tokens * self.limits.stream.best / self.streamed_bytes

    @property
    def roofline(self) -> float:
        """Tokens per second if each operation ran at the limit that binds it."""
        return self.tokens / sum(row.bound_seconds for row in self.rows)


def tap_order(model: Model, batch: Batch, workspace: Workspace) -> list[TapName]:
    """The taps in the order in which the forward reaches them; nothing is computed."""
    return [(each.name, each.layer) for each in shown_by_step(model, batch, workspace)]


def intervals(clocks: Clocks, order: Sequence[TapName]) -> list[int]:
    """Cycles of the handover, then of each operation of ``order``, from the clocks [n, 1 + stamps] of a step's members.

    An operation is complete when the first member leaves its barrier: a member that the system stops there comes late
    to its own stamp, while the others go on. So the earliest stamp of all members counts; the processors' counters
    agree. Raises ValueError when the clocks have not exactly the stamps that the forward's taps explain.
    """
    expected = len(order) + 2
    if clocks.shape[1] != expected + 1 or (clocks[:, 0] != expected).any():
        raise ValueError(
            f"the clocks hold {clocks[:, 0].tolist()} stamps in {clocks.shape[1] - 1} words; {len(order)} taps and the "
            f"two at the start make {expected}. The timed forward and the dry run differ."
        )
    return [int(cycles) for cycles in np.diff(clocks[:, 1:].min(axis=0))]


def bound_of(cost: Cost, limits: MachineLimits) -> tuple[str, float]:
    """The limit that binds an operation (Williams et al. 2009, the roofline), and the least seconds it allows."""
    products, rate = limits.of_products(cost.rows)
    seconds, name = max(
        (cost.bytes / limits.stream.best, "memory"),
        (cost.int8_operations / rate.best, products),
        (cost.flops / limits.float32.best, "float32"),
    )
    return (name, seconds) if seconds > 0 else ("", 0.0)


def group_rows(
    order: Sequence[TapName], seconds: Sequence[float], costs: Mapping[TapName, Cost], limits: MachineLimits
) -> tuple[LedgerRow, ...]:
    """Rows by tap name, layers together. seconds: of the handover, then of each operation of ``order``.

    An operation that the model doesn't have has no cost and no row; the nanoseconds of its call go to the one before.
    """
    times: dict[str, float] = {}
    members: dict[str, list[Cost]] = {}
    row = HANDOVER
    for (name, layer), spent in zip(order, seconds[1:], strict=True):
        if (name, layer) in costs:
            row = name
            members.setdefault(name, []).append(costs[name, layer])
        times[row] = times.get(row, 0.0) + spent
    rows = [LedgerRow(HANDOVER, 1, "", 0, 0, 0, 0, 0, seconds[0], "", 0.0)]
    for name, group in members.items():
        total = Cost(
            group[0].shape,
            rows=group[0].rows,
            **{
                field: sum(getattr(cost, field) for cost in group)
                for field in ("int8_operations", "flops", "weight_bytes", "kv_bytes", "activation_bytes")
            },
        )
        bound, bound_seconds = bound_of(total, limits)
        rows.append(
            LedgerRow(
                name=name,
                calls=len(group),
                shape=total.shape,
                int8_operations=total.int8_operations,
                flops=total.flops,
                weight_bytes=total.weight_bytes,
                kv_bytes=total.kv_bytes,
                activation_bytes=total.activation_bytes,
                seconds=times[name],
                bound=bound,
                bound_seconds=bound_seconds,
            )
        )
    return tuple(rows)


def measure_ledgers(
    runner: ModelRunner,
    batches: Sequence[Batch],
    weight_bytes: Mapping[str, int],
    limits: MachineLimits,
    repeats: int = LEAST_REPEATS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Ledger]:
    """A ledger for each batch. In each of ``repeats`` rounds every batch runs closed and timed in turn, so that a
    machine whose speed drifts does it to all of them; a round before these warms up.

    A step that is repeated writes the same keys and values again. weight_bytes: bytes of each matrix under its name
    in the file. progress: hears how many rounds of how many are done.
    """
    if repeats < LEAST_REPEATS:
        raise InvalidRequestError(f"repeats is {repeats}; a median needs {LEAST_REPEATS} at least.", "repeats")
    order = tap_order(runner.loaded.record, batches[0], runner.workspace)
    closed: list[list[float]] = [[] for _ in batches]
    timed: list[list[list[int]]] = [[] for _ in batches]
    for batch in batches:
        runner.step(batch)
        runner.step_timed(batch)
    first = read_clocks()
    for done in range(repeats):
        progress(done, repeats)
        for number, batch in enumerate(batches):
            begin = time.perf_counter()
            runner.step(batch)
            closed[number].append(time.perf_counter() - begin)
            timed[number].append(intervals(runner.step_timed(batch), order))
    period = seconds_per_cycle(first, read_clocks())
    ledgers = []
    for number, batch in enumerate(batches):
        # A whole step, so that its parts add up: medians of each part would not.
        median_step = sorted(timed[number], key=sum)[repeats // 2]
        position_bytes = runner.kv.position_bytes // runner.config.num_layers
        costs = step_costs(runner.config, weight_bytes, works_of(runner.config, batch), position_bytes)
        ledgers.append(
            Ledger(
                tokens=len(batch.tokens),
                context=int(batch.positions.max()) + 1,
                rows=group_rows(order, [cycles * period for cycles in median_step], costs, limits),
                closed_seconds=tuple(sorted(closed[number])),
                limits=limits,
            )
        )
    return ledgers


def measure_ledger(
    runner: ModelRunner,
    batch: Batch,
    weight_bytes: Mapping[str, int],
    limits: MachineLimits,
    repeats: int = LEAST_REPEATS,
) -> Ledger:
    """The ledger of one batch; see ``measure_ledgers``."""
    (ledger,) = measure_ledgers(runner, [batch], weight_bytes, limits, repeats)
    return ledger
