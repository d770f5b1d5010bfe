"""The shape table of a model, for people.

In: a ``ShapeReport``. Out: rich tables: dimensions, weights, KV cache, buffers.
"""

from collections.abc import Sequence
from typing import Final

from rich.table import Table

from cutaway.audit.shape_report import ShapeLine, ShapeReport
from cutaway.cli.console import quantity
from cutaway.cli.tables import plain_table


def _dimension_table(report: ShapeReport) -> Table:
    """The letters of the shapes."""
    table = plain_table(f"Dimensions of {report.model}")
    table.add_column("name")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    for line in report.dimensions:
        table.add_row(line.name, f"{line.value:,}", line.meaning)
    return table


COLUMNS: Final = ("name", "count", "symbolic", "actual", "type", "bytes", "meaning")
NARROW: Final = ("name", "symbolic", "actual", "bytes")


def _shape_table(title: str, lines: Sequence[ShapeLine], total: int, narrow: bool) -> Table:
    """Weights or buffers, symbols beside numbers; narrow: with fewer columns."""
    table = plain_table(title)
    if narrow:
        table.padding = (0, 1, 0, 0)
    columns = NARROW if narrow else COLUMNS
    for column in columns:
        table.add_column(column, justify="right" if column in ("count", "bytes") else "left", no_wrap=True)

    def row(cells: Sequence[str], style: str = "") -> None:
        table.add_row(*(cell for column, cell in zip(COLUMNS, cells, strict=True) if column in columns), style=style)

    for line in lines:
        # No markup: "[T, D]" would be read as a style.
        symbolic, actual = ("\\[" + ", ".join(map(str, entries)) + "]" for entries in (line.symbolic, line.shape))
        row((line.name, str(line.count), symbolic, actual, line.dtype, quantity(line.bytes, "B"), line.meaning))
    row(("total", "", "", "", "", quantity(total, "B"), f"{total:,} bytes"), "bold")
    return table


def shape_tables(report: ShapeReport, narrow: bool = False) -> list[Table]:
    """Dimensions, weights, KV cache, buffers; narrow: for 80 columns, without types and meanings."""
    titles = {
        "weights": "Weights, in the file's block formats",
        "kv": "KV cache",
        "buffers": "Buffers, allocated once",
    }
    return [
        _dimension_table(report),
        *(_shape_table(title, getattr(report, part), report.total(part), narrow) for part, title in titles.items()),
    ]
