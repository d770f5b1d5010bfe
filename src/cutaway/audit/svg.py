"""What drawings in SVG are made of: the sheet, shapes, texts.

In: sizes, places, attributes. Out: elements, and the text of the file.
"""

from collections.abc import Mapping
from xml.etree.ElementTree import Element, SubElement, indent, tostring


def sheet(width: int, height: int) -> Element:
    """A white sheet."""
    svg = Element(
        "svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", width=str(width), height=str(height)
    )
    svg.set("font-family", "sans-serif")
    svg.set("font-size", "12")
    add(svg, "rect", width=width, height=height, fill="white")
    return svg


def add(parent: Element, tag: str, **attributes: object) -> Element:
    """A shape; numbers with two decimals."""
    shown = {name: f"{value:.2f}" if isinstance(value, float) else str(value) for name, value in attributes.items()}
    return SubElement(parent, tag, shown)


def write(svg: Element, x: float, y: float, text: str, attributes: Mapping[str, str]) -> None:
    """A text; x, y: where its base line begins."""
    element = add(svg, "text", x=float(x), y=float(y))
    element.text = text
    for name, value in attributes.items():
        element.set(name, value)


def file_text(svg: Element) -> str:
    """What the file holds."""
    indent(svg)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(svg, encoding="unicode") + "\n"
