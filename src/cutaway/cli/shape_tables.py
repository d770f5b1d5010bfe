"""The shape table of a model, for people.

In: a ``ShapeReport``. Out: rich tables: dimensions, weights, KV cache, buffers.
"""

from collections.abc import Sequence

from rich.table import Table

from cutaway.audit.shape_report import ShapeLine, ShapeReport
from cutaway.cli.tables import plain_table, quantity


def _dimension_table(report: ShapeReport) -> Table:
    table = plain_table(f"Dimensions of {report.model}")
    table.add_column("name")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    for line in report.dimensions:
        table.add_row(line.name, f"{line.value:,}", line.meaning)
    return table


def _shape_table(title: str, lines: Sequence[ShapeLine], total: int) -> Table:
    table = plain_table(title)
    table.add_column("name", no_wrap=True)
    table.add_column("count", justify="right")
    table.add_column("symbolic", no_wrap=True)
    table.add_column("actual", no_wrap=True)
    table.add_column("type")
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("meaning")
    for line in lines:
        # No markup: "[T, D]" would be read as a style.
        symbolic, actual = ("\\[" + ", ".join(map(str, entries)) + "]" for entries in (line.symbolic, line.shape))
        table.add_row(line.name, str(line.count), symbolic, actual, line.dtype, quantity(line.bytes, "B"), line.meaning)
    table.add_row("total", "", "", "", "", quantity(total, "B"), f"{total:,} bytes", style="bold")
    return table


def shape_tables(report: ShapeReport) -> list[Table]:
    """Dimensions, weights, KV cache, buffers."""
    titles = {
        "weights": "Weights, in the file's block formats",
        "kv": "KV cache",
        "buffers": "Buffers, allocated once",
    }
    return [
        _dimension_table(report),
        *(_shape_table(title, getattr(report, part), report.total(part)) for part, title in titles.items()),
    ]
