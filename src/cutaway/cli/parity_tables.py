"""Parity for people and for programs.

In: ``Parity``, ``Foreign``. Out: what rich prints, or plain data for JSON.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cutaway.audit.parity.against import Foreign
from cutaway.audit.parity.parity import OperationParity, Parity
from cutaway.cli.tables import plain_table

BAR: Final = 40  # characters of the longest


def parity_pages(found: Parity, foreign: Foreign | None, every_layer: bool) -> Iterator[RenderableType]:
    """All tables with the sentences between them."""
    yield Text(
        f"{found.model}: {found.tokens} tokens through the engine (keys and values in {found.kv_dtype}) and through "
        "float64."
    )
    yield ""
    yield _operations_table(found.operations if every_layer else _worst_of_layers(found.operations), every_layer)
    yield Text(
        "Each operation on its own inputs: no error compounds here. rms is the error of a token's row, expected is "
        "derived; worst is that of any number, limit its budget. docs/parity.md derives them."
    )
    yield ""
    yield _growth_table(found.residual())
    yield Text(
        "The residual stream beside a whole run in float64. Added up: if roundings to int8 only added up, and no layer "
        "made more or less of them."
    )
    yield ""
    if foreign is not None:
        yield from _foreign_page(foreign)
        yield ""
    yield from map(Text, verdict(found, foreign))


def verdict(found: Parity, foreign: Foreign | None) -> list[str]:
    """What comes of it, a sentence a line."""
    end = found.end
    lines = [
        f"KL(float64 ‖ engine): {end.kl_mean:.2e} nats on average, {end.kl_greatest:.2e} at most, at position "
        f"{end.kl_greatest_at}; {end.kl_expected:.2e} expected. The likeliest token is the same at "
        f"{100 * end.same_top:.1f} % of the positions.",
        f"Perplexity of the text: {end.perplexity_reference:.4g} in float64, {end.perplexity_engine:.4g} in the "
        "engine.",
        "Closed and open runs have the same bits."
        if found.same_bits
        else "OVER: the closed run's bits are not the open one's.",
    ]
    over = found.first_over
    lines.append(
        "Every operation keeps to its budget."
        if over is None
        else f"OVER: {_place(over.name, over.layer)} is the first operation beyond its budget: {over.worst:.2e}, "
        f"allowed are {over.limit:.2e}."
    )
    if foreign is not None:
        first = foreign.first_over
        lines.append(
            f"The definition is what {foreign.versions} computes, within its float32."
            if first is None
            else f"OVER: after {_place(first.name, first.layer)} the definition is not what {foreign.versions} "
            f"computes: {first.definition:.2e} apart, allowed are {first.limit:.2e}."
        )
        lines += [f"It reads the file otherwise: {each}." for each in foreign.otherwise]
    return lines


def _place(name: str, layer: int) -> str:
    return name if layer < 0 else f"{name} of layer {layer}"


def _share(each: OperationParity) -> float:
    """Of the budget; infinite where nothing was allowed."""
    if each.limit > 0:
        return each.worst / each.limit
    return 0.0 if each.worst == 0 else math.inf


def _worst_of_layers(operations: Sequence[OperationParity]) -> list[OperationParity]:
    """For each name the layer that is nearest to its budget, or farthest beyond."""
    names = dict.fromkeys(each.name for each in operations)
    return [
        max((each for each in operations if each.name == name), key=lambda each: (not each.within, _share(each)))
        for name in names
    ]


def _operations_table(operations: Sequence[OperationParity], every_layer: bool) -> Table:
    """Errors beside budgets; every layer's, or of each operation the worst."""
    table = plain_table("Operation by operation" if every_layer else "Operation by operation: each one's worst layer")
    table.add_column("operation", no_wrap=True)
    for column in ("layer", "rms", "expected", "worst", "limit", "% of\nlimit", "distance\nfrom float64"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for each in operations:
        table.add_row(
            each.name,
            "" if each.layer < 0 else str(each.layer),
            _small(each.rms),
            _small(each.expected),
            _small(each.worst),
            _small(each.limit),
            f"{100 * _share(each):.0f}" if math.isfinite(_share(each)) else "∞",
            _small(each.distance),
            "" if each.within else "OVER",
            style=None if each.within else "bold red",
        )
    return table


def _growth_table(residual: Sequence[OperationParity]) -> Table:
    """The residual stream's distance from float64 after each layer, beside what the operations' errors add up to."""
    table = plain_table("Where it grows")
    table.add_column("after", no_wrap=True)
    for column in ("distance", "added up", "ratio"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    largest = max(each.distance for each in residual) or 1.0
    for each in residual:
        expected = each.distance_expected or 0.0
        bar = "█" * max(1, round(BAR * each.distance / largest)) if each.distance > 0 else ""
        table.add_row(
            "embedding" if each.layer < 0 else f"layer {each.layer}",
            _small(each.distance),
            _small(expected),
            f"{each.distance / expected:.2f}" if expected > 0 else "",
            bar,
        )
    return table


def _foreign_page(foreign: Foreign) -> Iterator[RenderableType]:
    """Both of ours beside the other program's residual stream."""
    table = plain_table(f"Beside {foreign.versions}")
    table.add_column("after", no_wrap=True)
    for column in ("float64 from it", "limit", "engine from it"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for each in foreign.rows:
        table.add_row(
            each.name if each.layer < 0 else f"layer {each.layer}",
            _small(each.definition),
            _small(each.limit),
            _small(each.engine),
            "" if each.within else "OVER",
            style=None if each.within else "bold red",
        )
    yield table


def _small(value: float) -> str:
    return "0" if value == 0 else f"{value:.2e}"


def parity_dict(found: Parity, foreign: Foreign | None) -> dict[str, Any]:
    """Plain data; what is no finite number is null."""
    data = asdict(found)
    for row, each in zip(data["operations"], found.operations, strict=True):
        row["within"] = each.within
    over = found.first_over
    data["first_over"] = None if over is None else {"name": over.name, "layer": over.layer}
    data["against"] = None
    if foreign is not None:
        first = foreign.first_over
        data["against"] = {
            **asdict(foreign),
            "first_over": None if first is None else {"name": first.name, "layer": first.layer},
        }
    cleaned: dict[str, Any] = _finite(data)
    return cleaned


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
