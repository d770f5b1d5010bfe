"""The ladder drawn as SVG: for each rung its speed, its time to the first token, its memory, and its waste, as bars.

In: the rungs' results. Out: the text of an SVG file. Each column has a scale of its own, from 0 on.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from xml.etree.ElementTree import SubElement

from cutaway.audit.ladder import RungResult
from cutaway.audit.svg import add, file_text, sheet, write

WIDTH: Final = 1100
TOP, ROW, BAR = 96, 46, 20  # the first row, the height of a row, of a bar
NAMES: Final = 150  # where the bars begin
GAP: Final = 74  # right of a column's longest bar, for its number
FULL, LIGHT = "#1f6fb4", "#bcd6ec"


class Column(NamedTuple):
    """A quantity of each rung; ``behind`` is a wider, lighter bar behind its own."""

    title: str
    value: Callable[[RungResult], float]
    shown: Callable[[RungResult], str]
    behind: Callable[[RungResult], float] | None = None


COLUMNS: Final = (
    Column("tokens a second", lambda rung: rung.rate, lambda rung: f"{rung.rate:.0f}"),
    Column(
        "seconds to the first token: median, longest",
        lambda rung: rung.first_token,
        lambda rung: f"{rung.first_token:.2f} · {rung.last_first_token:.2f}",
        lambda rung: rung.last_first_token,
    ),
    Column(
        "KV memory, MB: used, reserved",
        lambda rung: rung.kv_used / 1e6,
        lambda rung: f"{rung.kv_used / 1e6:.0f} of {rung.kv_reserved / 1e6:.0f}",
        lambda rung: rung.kv_reserved / 1e6,
    ),
    Column("pads, % of computed rows", lambda rung: 100 * rung.waste, lambda rung: f"{100 * rung.waste:.0f}"),
)


def ladder_svg(title: str, rungs: Sequence[RungResult]) -> str:
    """The drawing."""
    svg = sheet(WIDTH, TOP + ROW * len(rungs) + 30)
    write(svg, 24, 34, title, {"font-size": "16", "font-weight": "bold"})
    width = (WIDTH - NAMES - 20) / len(COLUMNS)
    for number, column in enumerate(COLUMNS):
        left = NAMES + number * width
        write(svg, left, TOP - 22, column.title, {"fill": "#555"})
        longest = max(max(column.value(rung), column.behind(rung) if column.behind else 0.0) for rung in rungs) or 1.0
        for place, rung in enumerate(rungs):
            y = TOP + place * ROW
            for value, colour in ((column.behind, LIGHT), (column.value, FULL)):
                if value is not None:
                    bar = add(svg, "rect", x=left, y=y, height=BAR, fill=colour)
                    bar.set("width", f"{(width - GAP) * value(rung) / longest:.2f}")
                    bar.set("class", f"bar-{number}")
                    SubElement(bar, "title").text = f"{rung.name}: {column.title}: {column.shown(rung)}"
            reach = max(column.value(rung), column.behind(rung) if column.behind else 0.0)
            write(svg, left + (width - GAP) * reach / longest + 5, y + 15, column.shown(rung), {"class": "number"})
    for place, rung in enumerate(rungs):
        y = TOP + place * ROW
        write(svg, NAMES - 12, y + 15, rung.name, {"text-anchor": "end", "class": "rung"})
        write(svg, NAMES, y + BAR + 14, rung.change, {"fill": "#777", "font-size": "11"})
    return file_text(svg)
