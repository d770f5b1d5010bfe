"""Limits and ledgers for people and for programs.

In: ``MachineLimits``, ``Ledger``. Out: rich tables and sentences, or plain data for JSON.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from cutaway.audit.ledger import Ledger, LedgerRow
from cutaway.audit.limits import MachineLimits, Rate
from cutaway.audit.request_ledger import SharedLedger
from cutaway.cli.console import quantity

BYTE_FIELDS = ("weight_bytes", "kv_bytes", "activation_bytes")
PIPED_WIDTH = 140  # columns where the output is no terminal
UNBOUNDED = 10_000  # columns; wider than any table
BUSY = 1.3
"""Steps that take so many times as long as the fastest are a neighbour's doing."""


def output_console(piped_width: int = PIPED_WIDTH) -> Console:
    """A console on standard output; where that is no terminal: without colour, of fixed width."""
    console = Console(highlight=False, emoji=False)
    return console if console.is_terminal else Console(width=piped_width, highlight=False, emoji=False)


class FirstThatFits:
    """The first of several tables whose columns fit the console that it is printed on, else the last."""

    def __init__(self, *tables: Table) -> None:
        self._tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbounded = options.update(max_width=UNBOUNDED)  # a measure never exceeds the width that it is given
        fitting = (t for t in self._tables if console.measure(t, options=unbounded).maximum <= options.max_width)
        yield next(fitting, self._tables[-1])


def print_whole(console: Console, renderables: Iterable[RenderableType]) -> None:
    """Print; a table is as wide as it must be, whatever the console's width, so that no number is cut. Where the output
    is no terminal, lines don't end in blanks.
    """
    width = console.width
    for each in renderables:
        if isinstance(each, Table):
            unbounded = console.options.update(max_width=UNBOUNDED)
            console.width = max(width, console.measure(each, options=unbounded).maximum)
        if console.is_terminal:
            console.print(each)
        else:
            with console.capture() as capture:
                console.print(each)
            console.file.writelines(f"{line.rstrip()}\n" for line in capture.get().splitlines())
        console.width = width


def plain_table(title: str) -> Table:
    """A table without vertical lines."""
    return Table(
        title=Text(title), title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0), header_style="dim"
    )


def limits_table(limits: MachineLimits, narrow: bool = False) -> Table:
    """The machine's limits, each with its spread; narrow: without how they were probed."""
    table = plain_table(f"Limits of this machine, {_threads(limits.threads)}")
    table.add_column("limit", no_wrap=True)
    for column in ("best", "median", "worst") if narrow else ("best", "median", "worst", "repeats"):
        table.add_column(column, justify="right", no_wrap=True)
    if not narrow:
        table.add_column("probe", no_wrap=True)

    def row(name: str, rate: Rate, unit: str, probe: str) -> None:
        rates = [quantity(value, unit) for value in (rate.best, rate.median, rate.worst)]
        table.add_row(name, *rates, *(() if narrow else (str(rate.repeats), probe)))

    row("streaming read", limits.stream, "B/s", f"{quantity(limits.stream_bytes, 'B')}, {_pages(limits)}")
    row("int8 dot products", limits.int8, "op/s", f"registers and L1, {limits.lowering}")
    if limits.amx is not None:
        row("int8 products with AMX", limits.amx, "op/s", "matrix registers, full")
    row("float32 multiply-add", limits.float32, "op/s", f"registers, {limits.lowering}")
    return table


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count != 1 else ''}"


def _pages(limits: MachineLimits) -> str:
    if limits.huge_page_bytes is None:
        return "page size unknown"
    return f"{100 * limits.huge_page_bytes / limits.stream_bytes:.0f} % in huge pages"


def narrow_ledger_table(ledger: Ledger, title: str) -> Table:
    """As ``ledger_table``, for 80 columns: without shapes, all bytes in one column, three digits of each number."""
    table = plain_table(title)
    table.padding = (0, 1, 0, 0)
    for column in ("operation", "calls", "operations", "bytes", "time\nms", "% of\nstep", "limit", "% of\nlimit"):
        table.add_column(column, justify="left" if column in ("operation", "limit") else "right", no_wrap=True)
    for row in ledger.rows:
        name, calls, *_, time, of_step, limit, of_limit = _cells(row, ledger.seconds)
        kind = " int8" if row.int8_operations else " f32 "
        operations = quantity(row.int8_operations or row.flops, "")
        table.add_row(
            name,
            calls,
            operations and operations + kind,
            quantity(row.bytes, "B"),
            time,
            of_step,
            limit,
            of_limit,
        )
    calls, size = str(sum(row.calls for row in ledger.rows)), quantity(sum(row.bytes for row in ledger.rows), "B")
    table.add_row("sum", calls, "", size, *_sum_cells(ledger), style="bold")
    return table


def shared_ledger_table(ledger: SharedLedger, title: str) -> Table:
    """A request's share of its steps: one row for each operation, and their sum."""
    table = plain_table(f"{title}: its share of {ledger.steps:,} steps, {ledger.tokens:,} rows")
    table.add_column("operation", no_wrap=True)
    for column in ("calls", "operations", "bytes", "time\nms", "% of\nall"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("limit", no_wrap=True)
    table.add_column("% of\nlimit", justify="right", no_wrap=True)
    for row in ledger.rows:
        kind = " int8" if row.int8_operations else " f32 "
        operations = quantity(row.int8_operations or row.flops, "")
        table.add_row(
            row.name,
            f"{row.calls:,}",
            operations and operations + kind,
            quantity(row.weight_bytes + row.kv_bytes + row.activation_bytes, "B"),
            f"{row.seconds * 1e3:,.3f}",
            _percent(row.seconds, ledger.seconds),
            max(row.bounds, key=lambda name: row.bounds[name], default=""),
            _percent(row.bound_seconds, row.seconds) if row.bounds else "",
        )
    bound = sum(row.bound_seconds for row in ledger.rows)
    calls = f"{sum(row.calls for row in ledger.rows):,}"
    total = f"{ledger.seconds * 1e3:,.3f}"
    table.add_row("sum", calls, "", "", total, "100.0", "", _percent(bound, ledger.seconds), style="bold")
    return table


def _sum_cells(ledger: Ledger) -> tuple[str, str, str, str]:
    bound = sum(row.bound_seconds for row in ledger.rows)
    return f"{ledger.seconds * 1e3:,.3f}", "100.0", "", _percent(bound, ledger.seconds)


def ledger_table(ledger: Ledger, title: str) -> Table:
    """One row for each operation, and their sum."""
    table = plain_table(title)
    table.add_column("operation", no_wrap=True)
    table.add_column("calls", justify="right", no_wrap=True)
    table.add_column("shape", no_wrap=True)
    for column in ("million\noperations", "weights\nMB", "KV\nMB", "activations\nMB", "time\nms", "% of\nstep"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("limit", no_wrap=True)
    table.add_column("% of\nlimit", justify="right", no_wrap=True)
    for row in ledger.rows:
        table.add_row(*_cells(row, ledger.seconds))
    totals = [sum(getattr(row, field) for row in ledger.rows) for field in BYTE_FIELDS]
    table.add_row(
        "sum",
        str(sum(row.calls for row in ledger.rows)),
        "",
        "",
        *map(_millions, totals),
        *_sum_cells(ledger),
        style="bold",
    )
    return table


def _cells(row: LedgerRow, step_seconds: float) -> list[str]:
    """A row of the ledger as texts, in the order of the columns."""
    if row.int8_operations:
        operations = f"{_millions(row.int8_operations)} int8"
    else:
        operations = f"{_millions(row.flops)} f32 " if row.flops else ""
    return [
        row.name,
        str(row.calls),
        row.shape,
        operations,
        *(_millions(getattr(row, field)) for field in BYTE_FIELDS),
        f"{row.seconds * 1e3:,.3f}",
        _percent(row.seconds, step_seconds),
        row.bound,
        _percent(row.bound_seconds, row.seconds) if row.bound else "",
    ]


def _millions(value: int) -> str:
    """To three decimals; nothing for 0."""
    return f"{value / 1e6:,.3f}" if value else ""


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole > 0 else ""


def ledger_summary(ledger: Ledger) -> list[str]:
    """What a ledger says as a whole, a sentence a line."""
    slowest, median, fastest = ledger.tokens_per_second
    lines = [
        f"{median:,.1f} tokens/s: median of {len(ledger.closed_seconds)} closed steps, "
        f"{slowest:,.1f} to {fastest:,.1f}.",
        f"{ledger.roofline:,.1f} tokens/s if each operation ran at its limit: "
        f"{100 * median / ledger.roofline:.1f} % of that is reached.",
        f"The operations' times add up to {ledger.seconds * 1e3:,.3f} ms, the closed step takes "
        f"{ledger.closed_median * 1e3:,.3f} ms: {100 * ledger.deviation:+.1f} %.",
    ]
    if ledger.streaming_limit < 2 * ledger.roofline:  # streaming is most of what must be done
        lines.insert(
            1,
            f"{ledger.streaming_limit:,.1f} tokens/s is the streaming limit, {quantity(ledger.streamed_bytes, 'B')} of "
            f"weights and KV at {quantity(ledger.limits.stream.best, 'B/s')}: "
            f"{100 * median / ledger.streaming_limit:.1f} % of it is reached.",
        )
    return lines


def unrest(ledgers: Sequence[Ledger]) -> list[str]:
    """That the machine was busy, if it was: steps, closed or timed, far above the fastest of the same ledger."""
    factor = statistics.median(max(each.closed_median, each.seconds) / each.closed_seconds[0] for each in ledgers)
    if factor < BUSY:
        return []
    return [
        f"The machine was busy: a step took {factor:.1f} times as long as the fastest, and some operations still more. "
        "Measure again when it is quiet."
    ]


LEGEND = (
    "Operations and bytes are those of all calls. Bytes are those that must be read or written at least once; where "
    "they lie in a cache already, an operation can be faster than streaming memory allows (more than 100 % of it)."
)


def ledger_dict(ledger: Ledger) -> dict[str, Any]:
    """Plain data: seconds, bytes and operations; the machine's limits are not repeated."""
    slowest, median, fastest = ledger.tokens_per_second
    return {
        "tokens": ledger.tokens,
        "context": ledger.context,
        "tokens_per_second": {"median": median, "slowest": slowest, "fastest": fastest},
        "closed_seconds": list(ledger.closed_seconds),
        "closed_median": ledger.closed_median,
        "timed_seconds": ledger.seconds,
        "deviation": ledger.deviation,
        "streamed_bytes": ledger.streamed_bytes,
        "streaming_limit": ledger.streaming_limit,
        "roofline": ledger.roofline,
        "operations": [asdict(row) for row in ledger.rows],
    }
