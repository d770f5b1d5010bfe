"""Two curves of decoding: tokens a second against the rows of a step, and time a token against the context.

In: a runner whose KV cache is filled, the bytes of its matrices, the machine's limits. Out: a ledger for each point,
and what follows from them: where batching's gain ends, what one more row costs, what 1,000 more positions cost.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cutaway.audit.ledger import Ledger, LedgerRow, measure_ledgers
from cutaway.audit.limits import MachineLimits
from cutaway.audit.workloads import decode_batch
from cutaway.engine.runner import ModelRunner
from cutaway.ops.cpu.kv_tiles import SUBTILE

BATCH_ROWS: Final = (1, 2, 4, 8, 16, 32, 64)
CONTEXTS: Final = (1, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
NEARLY_ALL: Final = 0.9
"""Batching's gain has ended where this part of the most tokens a second is reached."""


@dataclass(frozen=True)
class Parts:
    """A step's seconds: matrix products, which share the weights among all rows; attention, in which each row reads
    keys and values of its own; everything else.
    """

    products: float
    attention: float
    other: float


def products(ledger: Ledger) -> list[LedgerRow]:
    """The rows of the matrix products."""
    return [row for row in ledger.rows if row.int8_operations]


def attention(ledger: Ledger) -> LedgerRow:
    """The row of attention."""
    return next(row for row in ledger.rows if row.name == "attention")


def parts(ledger: Ledger) -> Parts:
    """Where the timed step's time went."""
    in_products, in_attention = sum(row.seconds for row in products(ledger)), attention(ledger).seconds
    return Parts(in_products, in_attention, ledger.seconds - in_products - in_attention)


@dataclass(frozen=True)
class BatchCurve:
    """Ledgers of steps of ever more rows (``Ledger.tokens``), all at one context."""

    ledgers: tuple[Ledger, ...]

    @property
    def best(self) -> Ledger:
        """The point with the most tokens a second."""
        return max(self.ledgers, key=lambda ledger: ledger.tokens / ledger.closed_median)

    @property
    def gain_ends(self) -> int:
        """The fewest rows that give ``NEARLY_ALL`` of the most tokens a second."""
        enough = NEARLY_ALL * self.best.tokens / self.best.closed_median
        return next(each.tokens for each in self.ledgers if each.tokens / each.closed_median >= enough)

    @property
    def bound_by_arithmetic(self) -> dict[str, int]:
        """Matrix product → the fewest measured rows from which on its dot products, at the machine's limit, take longer
        than streaming its bytes. Products that stay bound by memory are left out.
        """
        first: dict[str, int] = {}
        for ledger in self.ledgers:
            for row in products(ledger):
                if row.bound != "memory":
                    first.setdefault(row.name, ledger.tokens)
        return first

    @property
    def cost_of_a_row(self) -> Parts | None:
        """Seconds by which a step grew for each row between the last two points; None where there is one point."""
        if len(self.ledgers) < 2:
            return None
        fewer, more = self.ledgers[-2:]
        before, after, rows = parts(fewer), parts(more), more.tokens - fewer.tokens
        return Parts(
            (after.products - before.products) / rows,
            (after.attention - before.attention) / rows,
            (after.other - before.other) / rows,
        )


@dataclass(frozen=True)
class Line:
    """A straight line through points, by least squares."""

    seconds: float  # at no context
    seconds_per_position: float

    @classmethod
    def through(cls, contexts: Sequence[int], seconds: Sequence[float]) -> "Line":
        """Two different contexts at least."""
        slope, intercept = statistics.linear_regression(contexts, seconds)
        return cls(intercept, slope)


@dataclass(frozen=True)
class ContextCurve:
    """Ledgers of steps of one row at ever longer contexts (``Ledger.context``), two at least."""

    ledgers: tuple[Ledger, ...]

    def _line(self, seconds: Callable[[Ledger], float]) -> Line:
        return Line.through([ledger.context for ledger in self.ledgers], [seconds(ledger) for ledger in self.ledgers])

    @property
    def step(self) -> Line:
        """Of closed steps."""
        return self._line(lambda ledger: ledger.closed_median)

    @property
    def attention(self) -> Line:
        """Of attention alone, in timed steps."""
        return self._line(lambda ledger: attention(ledger).seconds)

    @property
    def kv_bytes_per_position(self) -> float:
        """Keys and values that attention reads for each position, all layers."""
        last = self.ledgers[-1]
        return attention(last).kv_bytes / last.context

    @property
    def streaming_seconds_per_position(self) -> float:
        """The least time that the streaming limit allows for these."""
        return self.kv_bytes_per_position / self.ledgers[-1].limits.stream.best

    @property
    def context_that_doubles(self) -> float | None:
        """Positions at which reading the context costs as much as all else; None where no growth was seen."""
        line = self.step
        return line.seconds / line.seconds_per_position if min(line.seconds, line.seconds_per_position) > 0 else None


def batch_rows(context: int, positions: int) -> list[int]:
    """The points of the batch curve: as many rows as a pool of so many positions holds, each with its own context in
    the smallest pages.
    """
    reserved = -(-context // SUBTILE) * SUBTILE
    return [rows for rows in BATCH_ROWS if rows * reserved <= positions]


def contexts_up_to(longest: int) -> list[int]:
    """The points of the context curve: powers of two and the longest context itself."""
    return [context for context in CONTEXTS if context < longest] + [longest]


def measure_batch_curve(
    runner: ModelRunner,
    rows: Sequence[int],
    context: int,
    weight_bytes: Mapping[str, int],
    limits: MachineLimits,
    repeats: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> BatchCurve:
    """Steps of one token in each of so many sequences, all at this context, measured in turn."""
    batches = [decode_batch(runner, context, number) for number in rows]
    return BatchCurve(tuple(measure_ledgers(runner, batches, weight_bytes, limits, repeats, progress)))


def measure_context_curve(
    runner: ModelRunner,
    contexts: Sequence[int],
    weight_bytes: Mapping[str, int],
    limits: MachineLimits,
    repeats: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ContextCurve:
    """Steps of one token at each of these contexts, measured in turn."""
    batches = [decode_batch(runner, context) for context in contexts]
    return ContextCurve(tuple(measure_ledgers(runner, batches, weight_bytes, limits, repeats, progress)))
