"""The roofline of a machine with a step's operations under it, drawn as SVG (Williams et al. 2009).

In: ledgers with their titles. Out: the text of an SVG file: over the operations for each byte, the operations a second
that were reached, and what the machine's measured limits allow. Both axes are logarithmic.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element, SubElement

from cutaway.audit.ledger import Ledger
from cutaway.audit.limits import MachineLimits
from cutaway.audit.svg import add, file_text, sheet, write

WIDTH, HEIGHT = 1100, 720
LEFT, RIGHT, TOP, BOTTOM = 80, 1070, 60, 610  # of the plot, in the drawing's units
COLOURS: Final = ("#1f6fb4", "#c4501b", "#3a7d34", "#7a4ba3")
LETTER, LINE = 6.2, 13  # width of a letter and height of a line of a label
NOTES: Final = (
    "Above the slanted line lies what need not come from memory, since a cache has it already.",
    "Operations that only move bytes have no place here; the ledger has them.",
)
PREFIXES: Final = {0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}


@dataclass(frozen=True)
class Point:
    """An operation of a step."""

    name: str
    intensity: float  # operations for each byte that it must move
    rate: float  # operations a second that it reached
    series: int  # the ledger that it comes from


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis: whole powers of ten, from ``low`` to ``high``, over the drawing's units."""

    low: int
    high: int
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where the value lies."""
        return self.start + (math.log10(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> "Axis":
        """An axis that shows all these positive values."""
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return cls(low, max(high, low + 1), start, end)


def points_of(ledgers: Sequence[Ledger]) -> list[Point]:
    """One for each operation that computes something."""
    found = []
    for series, ledger in enumerate(ledgers):
        for row in ledger.rows:
            operations = row.int8_operations + row.flops
            if operations and row.bytes and row.seconds > 0:
                found.append(Point(row.name, operations / row.bytes, operations / row.seconds, series))
    return found


def ceilings_of(limits: MachineLimits) -> dict[str, float]:
    """The flat roofs, in operations a second."""
    found = {"int8 dot products": limits.int8.best, "float32 multiply-adds": limits.float32.best}
    return found if limits.amx is None else {"amx products of int8": limits.amx.best, **found}


def place_labels(points: Sequence[tuple[float, float, str]]) -> list[tuple[float, float]]:
    """Where each label begins (its left end, its baseline), for points (x, y, text): beside its point, or as near above
    or below as there is room without covering another label or point.
    """
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y, _ in points]
    places = []
    for x, y, text in points:
        width = LETTER * len(text)
        candidates = [
            (left, y + 4 + sign * step * LINE)
            for step in range(40)
            for left in (x + 8, x - 8 - width)
            for sign in (-1, 1)
        ]
        inside = [(a, b) for a, b in candidates if a >= LEFT and a + width <= WIDTH and b - LINE >= TOP and b <= BOTTOM]
        left, base = next(
            (
                (a, b)
                for a, b in inside
                if not any(a < r and l < a + width and b - LINE + 2 < u and o < b + 2 for l, o, r, u in taken)
            ),
            candidates[0],
        )
        taken.append((left, base - LINE + 2, left + width, base + 2))
        places.append((left, base))
    return places


def roofline_svg(title: str, titles: Sequence[str], points: Sequence[Point], limits: MachineLimits) -> str:
    """The drawing. titles: of the series, each of which has a colour. A point's tooltip has its numbers."""
    bandwidth, ceilings = limits.stream.best, ceilings_of(limits)
    roof = max(ceilings.values())
    across = Axis.over([*(p.intensity for p in points), *(top / bandwidth for top in ceilings.values())], LEFT, RIGHT)
    up = Axis.over([*(p.rate for p in points), *ceilings.values()], BOTTOM, TOP)
    svg = sheet(WIDTH, HEIGHT)
    write(svg, LEFT, 28, title, {"font-size": "16", "font-weight": "bold"})
    _axes(svg, across, up)
    left, right = 10.0**across.low, 10.0**across.high
    lowest = 10.0**up.low
    begin = max(left, lowest / bandwidth)
    end = min(right, roof / bandwidth)
    if begin < end:
        _line(svg, across(begin), up(bandwidth * begin), across(end), up(bandwidth * end), "limit-memory")
    label = f"streaming read, {_quantity(bandwidth)}B/s"
    write(svg, LEFT + 8, TOP + 16, f"slanted: {label}", {"fill": "#555"})
    for name, top in ceilings.items():
        start = min(max(left, top / bandwidth), right)
        _line(svg, across(start), up(top), RIGHT, up(top), f"limit-{name.split()[0]}")
        write(svg, RIGHT, up(top) - 6, f"{name}, {_quantity(top)}op/s", {"fill": "#555", "text-anchor": "end"})
    placed = [(across(p.intensity), up(p.rate), p.name) for p in points]
    for point, (x, y, name), (at, base) in zip(points, placed, place_labels(placed), strict=True):
        colour = COLOURS[point.series % len(COLOURS)]
        nearest = at if at > x else at + LETTER * len(name)
        if abs(base - 4 - y) > LINE:
            add(svg, "line", x1=x, y1=y, x2=nearest, y2=base - 4, stroke="#bbb", **{"stroke-width": "0.7"})
        circle = add(svg, "circle", cx=x, cy=y, r=4, fill=colour)
        numbers = f"{point.intensity:.3g} op/byte, {_quantity(point.rate)}op/s"
        SubElement(circle, "title").text = f"{name}, {titles[point.series]}: {numbers}"
        write(svg, at, base, name, {"fill": colour, "class": "label", "font-size": "11"})
    for series, text in enumerate(titles):
        y = HEIGHT - 46 + 18 * series
        add(svg, "rect", x=LEFT, y=y - 9, width=9, height=9, fill=COLOURS[series % len(COLOURS)])
        write(svg, LEFT + 16, y, text, {})
    for number, text in enumerate(NOTES):
        write(svg, RIGHT, HEIGHT - 46 + 18 * number, text, {"fill": "#555", "text-anchor": "end"})
    return file_text(svg)


def _axes(svg: Element, across: Axis, up: Axis) -> None:
    for power in range(across.low, across.high + 1):
        x = across(10.0**power)
        _line(svg, x, TOP, x, BOTTOM, "grid")
        write(svg, x, BOTTOM + 18, f"{10.0**power:g}", {"text-anchor": "middle", "class": "x-tick"})
    for power in range(up.low, up.high + 1):
        y = up(10.0**power)
        _line(svg, LEFT, y, RIGHT, y, "grid")
        write(svg, LEFT - 8, y + 4, f"{_quantity(10.0**power)}op/s", {"text-anchor": "end", "class": "y-tick"})
    write(svg, (LEFT + RIGHT) / 2, BOTTOM + 38, "operations for each byte", {"text-anchor": "middle"})


def _quantity(value: float) -> str:
    """Three digits and a decimal prefix."""
    power = min(max(math.floor(math.log10(value) / 3) * 3, 0), 15)
    return f"{value / 10.0**power:.3g} {PREFIXES[power]}"


def _line(svg: Element, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
    grid = kind == "grid"
    line = add(svg, "line", x1=x1, y1=y1, x2=x2, y2=y2, stroke="#e4e4e4" if grid else "#333")
    line.set("class", kind)
    line.set("stroke-width", "1" if grid else "2")
