"""The roofline drawing: valid XML, points where its own axes say, limits through the right places."""

import math
from xml.etree.ElementTree import Element, fromstring

import pytest

from cutaway.audit.ledger import HANDOVER, LedgerRow
from cutaway.audit.limits import MachineLimits
from cutaway.audit.roofline import (
    BOTTOM,
    HEIGHT,
    LEFT,
    LETTER,
    LINE,
    RIGHT,
    TOP,
    WIDTH,
    Point,
    place_labels,
    points_of,
    roofline_svg,
)
from support.ledgers import invented_ledger

SVG = "{http://www.w3.org/2000/svg}"
POWERS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
POINTS = [
    Point("qkv", 2.5, 8e9, 0),
    Point("logits", 40.0, 9e10, 1),
    Point("a < b & c", 0.03, 2e8, 1),
]


@pytest.fixture
def svg(limits: MachineLimits) -> Element:
    """10 GB/s, 100 Gop/s int8, 20 Gop/s float32."""
    return fromstring(roofline_svg("Tiny & quick", ["decode", "prefill <512>"], POINTS, limits))


def of_class(svg: Element, tag: str, name: str) -> list[Element]:
    return [each for each in svg.iter(SVG + tag) if each.get("class") == name]


def number(element: Element, name: str) -> float:
    return float(element.attrib[name])


def value_at(svg: Element, axis: str, place: float) -> float:
    """What the axis's own ticks say about a place of the drawing."""
    ticks = []
    for tick in of_class(svg, "text", f"{axis}-tick"):
        if axis == "x":
            ticks.append((number(tick, "x"), float(tick.text or "")))
        else:
            digits, prefix = (tick.text or "").removesuffix("op/s").split(" ")
            ticks.append((number(tick, "y") - 4, float(digits) * POWERS[prefix]))
    (low, first), (high, last) = ticks[0], ticks[-1]
    share = (place - low) / (high - low)
    return float(10 ** (math.log10(first) + share * (math.log10(last) - math.log10(first))))


def test_each_operation_has_a_labelled_point_in_its_place(svg: Element) -> None:
    circles = list(svg.iter(SVG + "circle"))
    for axis, ends in (("x", (LEFT, RIGHT)), ("y", (BOTTOM + 4, TOP + 4))):
        ticks = [number(tick, axis) for tick in of_class(svg, "text", f"{axis}-tick")]
        assert (ticks[0], ticks[-1]) == ends
    assert [label.text for label in of_class(svg, "text", "label")] == [point.name for point in POINTS]
    for point, circle in zip(POINTS, circles, strict=True):
        assert value_at(svg, "x", number(circle, "cx")) == pytest.approx(point.intensity, rel=0.01)
        assert value_at(svg, "y", number(circle, "cy")) == pytest.approx(point.rate, rel=0.01)
    tooltip = circles[2].find(SVG + "title")
    assert tooltip is not None
    assert tooltip.text == "a < b & c, prefill <512>: 0.03 op/byte, 200 Mop/s"
    assert len({circle.get("fill") for circle in circles}) == 2


def test_the_limits_are_lines_through_their_values(svg: Element, limits: MachineLimits) -> None:
    (memory,) = of_class(svg, "line", "limit-memory")
    for end in ("1", "2"):
        intensity = value_at(svg, "x", number(memory, "x" + end))
        rate = value_at(svg, "y", number(memory, "y" + end))
        assert rate == pytest.approx(limits.stream.best * intensity, rel=0.02)
    assert value_at(svg, "y", number(memory, "y2")) == pytest.approx(100e9, rel=0.02)
    for name, top in (("int8", 100e9), ("float32", 20e9)):
        (line,) = of_class(svg, "line", f"limit-{name}")
        assert line.get("y1") == line.get("y2")
        assert value_at(svg, "y", number(line, "y1")) == pytest.approx(top, rel=0.01)
        # A flat roof begins where the slanted one reaches it.
        assert value_at(svg, "x", number(line, "x1")) == pytest.approx(top / 10e9, rel=0.01)


def test_matrix_registers_have_a_roof_of_their_own(amx_limits: MachineLimits) -> None:
    svg = fromstring(roofline_svg("Tiny", ["decode", "prefill"], POINTS, amx_limits))
    (line,) = of_class(svg, "line", "limit-amx")
    assert value_at(svg, "y", number(line, "y1")) == pytest.approx(400e9, rel=0.01)
    assert value_at(svg, "x", number(line, "x1")) == pytest.approx(40, rel=0.01)
    assert "amx products of int8, 400 Gop/s" in [each.text for each in svg.iter(SVG + "text")]


def test_the_text_is_whole(svg: Element) -> None:
    texts = [each.text for each in svg.iter(SVG + "text")]
    for text in ("Tiny & quick", "decode", "prefill <512>", "int8 dot products, 100 Gop/s"):
        assert text in texts
    assert "slanted: streaming read, 10 GB/s" in texts
    for circle in svg.iter(SVG + "circle"):
        assert 0 < number(circle, "cx") < WIDTH
        assert 0 < number(circle, "cy") < HEIGHT


def test_points_come_from_what_a_ledger_counts(limits: MachineLimits) -> None:
    ledger = invented_ledger(limits, 2, 128, qkv=0.002, logits=0.004, attention=0.001, other=0.003)
    qkv, attention, addition, logits = points_of([ledger])
    assert (qkv.name, qkv.intensity, qkv.rate) == ("qkv", pytest.approx(8.0), pytest.approx(4e9))
    assert attention.intensity == pytest.approx(1 / 25_600)
    assert (addition.name, logits.series) == ("ffn_residual", 0)
    assert [point.series for point in points_of([ledger, ledger])] == [0] * 4 + [1] * 4


def test_what_computes_nothing_has_no_point(limits: MachineLimits) -> None:
    ledger = invented_ledger(limits, 1, 1, qkv=1, logits=1, attention=1, other=1)
    handover = LedgerRow(HANDOVER, 1, "", 0, 0, 0, 0, 0, 0.5, "", 0.0)
    copied = LedgerRow("take_rows", 1, "", 0, 0, 0, 0, 100, 0.5, "memory", 0.1)
    object.__setattr__(ledger, "rows", (handover, copied))
    assert points_of([ledger]) == []


def test_without_points_the_limits_are_drawn(limits: MachineLimits) -> None:
    svg = fromstring(roofline_svg("nothing", [], [], limits))
    assert list(svg.iter(SVG + "circle")) == []
    assert len(of_class(svg, "line", "limit-int8")) == 1


def test_labels_cover_neither_each_other_nor_points() -> None:
    crowd = [(500.0 + 3 * place, 300.0 + (place % 4), f"operation_{place}") for place in range(20)]
    places = place_labels(crowd)
    boxes = [
        (left, base - LINE + 2, left + LETTER * len(text), base + 2)
        for (left, base), (_, _, text) in zip(places, crowd, strict=True)
    ]
    boxes += [(x - 4, y - 4, x + 4, y + 4) for x, y, _ in crowd]
    labels = boxes[: len(crowd)]
    for number, (l, o, r, u) in enumerate(labels):
        for other, (a, b, c, d) in enumerate(boxes):
            if other != number:
                assert not (l < c and a < r and o < d and b < u), (number, other)
