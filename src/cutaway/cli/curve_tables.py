"""The curves of decoding, for people and for programs.

In: ``BatchCurve``, ``ContextCurve``. Out: rich tables with bars, sentences that explain them from what was measured,
or plain data for JSON.
"""

from dataclasses import asdict
from typing import Any

from rich.table import Table

from cutaway.audit.curves import NEARLY_ALL, BatchCurve, ContextCurve, attention, parts, products
from cutaway.audit.ledger import Ledger
from cutaway.cli.console import quantity
from cutaway.cli.tables import ledger_dict, plain_table

BAR_WIDTH = 24


def bar(value: float, most: float) -> str:
    """A bar as long as ``value`` is of ``most``, in halves of a character."""
    halves = round(2 * BAR_WIDTH * value / most) if most > 0 else 0
    return "█" * (halves // 2) + "▌" * (halves % 2)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f}"


def _weight_bytes(ledger: Ledger) -> int:
    return sum(row.weight_bytes for row in products(ledger))


def _int8_rate(ledger: Ledger) -> float:
    """Operations per second of the matrix products."""
    return sum(row.int8_operations for row in products(ledger)) / parts(ledger).products


def batch_table(curve: BatchCurve, title: str) -> Table:
    """A row for each number of rows: tokens a second, and where the step's time goes."""
    table = plain_table(title)
    for column in ("rows", "tokens/s"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, min_width=BAR_WIDTH)
    for column in ("a step\nms", "products\nms", "attention\nms", "other\nms", "weights\nread at", "dot products\nat"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("products\nbound by", no_wrap=True)
    most = curve.best.tokens / curve.best.closed_median
    for ledger in curve.ledgers:
        rate, times = ledger.tokens / ledger.closed_median, parts(ledger)
        table.add_row(
            str(ledger.tokens),
            f"{rate:,.0f}",
            bar(rate, most),
            _milliseconds(ledger.closed_median),
            _milliseconds(times.products),
            _milliseconds(times.attention),
            _milliseconds(times.other),
            quantity(_weight_bytes(ledger) / times.products, "B/s"),
            quantity(_int8_rate(ledger), "op/s"),
            " and ".join(sorted({row.bound for row in products(ledger)}, reverse=True)),
        )
    return table


def batch_explanation(curve: BatchCurve) -> list[str]:
    """Where batching's gain ends and why, a sentence a line; nothing where there is one point."""
    further = curve.cost_of_a_row
    if further is None:
        return []
    first, last = curve.ledgers[0], curve.ledgers[-1]
    before, after = parts(first), parts(last)
    lines = [
        f"The products read {quantity(_weight_bytes(first), 'B')} of weights once a step, for all rows: "
        f"{last.tokens} rows take {after.products / before.products:.1f} times the products' time of {first.tokens}. "
        f"Attention reads keys and values of each row's own: {after.attention / before.attention:.1f} times."
    ]
    crossed = curve.bound_by_arithmetic
    limit, most = last.limits.of_products(last.tokens)
    share = 100 * _int8_rate(last) / most.best
    reached = f"at {last.tokens} rows they reach {share:.0f} % of the {limit} limit"
    if crossed:
        points = sorted(set(crossed.values()))
        names = [
            f"{', '.join(name for name in crossed if crossed[name] == point)} from {point} rows on" for point in points
        ]
        lines.append(
            "At the machine's limits the dot products take longer than streaming the bytes of "
            f"{'; '.join(names)}. Measured, {reached}."
        )
    else:
        lines.append(
            "At the machine's limits streaming the weights takes longer than the dot products, at all these rows. "
            f"Measured, {reached}."
        )
    lines.append(_gain(curve))
    cost, fewer = further.products + further.attention + further.other, curve.ledgers[-2]
    return [
        *lines,
        f"From {fewer.tokens} to {last.tokens} rows, one more row costs {_milliseconds(cost)} ms "
        f"({_milliseconds(further.products)} products, {_milliseconds(further.attention)} attention, "
        f"{_milliseconds(further.other)} other). Each of {fewer.tokens} costs "
        f"{_milliseconds(fewer.seconds / fewer.tokens)} ms, a single one {_milliseconds(first.seconds)} ms.",
    ]


def _gain(curve: BatchCurve) -> str:
    """Where the gain ends."""
    best = curve.best
    most = best.tokens / best.closed_median
    ends = next(ledger for ledger in curve.ledgers if ledger.tokens == curve.gain_ends)
    if ends is curve.ledgers[-1]:
        return f"Up to {ends.tokens} rows there is a gain: {most:,.0f} tokens/s."
    if ends is best:
        return f"The gain ends at {best.tokens} rows with {most:,.0f} tokens/s."
    share = 100 * ends.tokens / ends.closed_median / most
    return (
        f"The gain ends at {ends.tokens} rows: they reach {share:.0f} % of the most, {most:,.0f} tokens/s at "
        f"{best.tokens} rows."
    )


def batch_dict(curve: BatchCurve) -> dict[str, Any]:
    """Plain data, with every point's ledger."""
    further = curve.cost_of_a_row
    return {
        "context": curve.ledgers[0].context,
        "most_tokens_per_second_at": curve.best.tokens,
        "gain_ends": curve.gain_ends,
        "gain_ends_at_part_of_most": NEARLY_ALL,
        "bound_by_arithmetic_from": curve.bound_by_arithmetic,
        "seconds_for_one_more_row": None if further is None else asdict(further),
        "points": [
            {"rows": ledger.tokens, "seconds": asdict(parts(ledger)), **ledger_dict(ledger)} for ledger in curve.ledgers
        ],
    }


def context_table(curve: ContextCurve, title: str) -> Table:
    """A row for each context: the time of a token, attention's part of it, and the least that streaming allows."""
    table = plain_table(title)
    for column in ("context", "a token\nms"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, min_width=BAR_WIDTH)
    for column in ("tokens/s", "attention\nms", "KV read\nMB", "streamed in\nms"):
        table.add_column(column, justify="right", no_wrap=True)
    most = max(ledger.closed_median for ledger in curve.ledgers)
    for ledger in curve.ledgers:
        row = attention(ledger)
        table.add_row(
            f"{ledger.context:,}",
            _milliseconds(ledger.closed_median),
            bar(ledger.closed_median, most),
            f"{1 / ledger.closed_median:,.0f}",
            _milliseconds(row.seconds),
            f"{row.kv_bytes / 1e6:,.2f}",
            _milliseconds(row.kv_bytes / ledger.limits.stream.best),
        )
    return table


def context_explanation(curve: ContextCurve) -> list[str]:
    """What a longer context costs, a sentence a line."""
    alone, streaming = curve.attention.seconds_per_position, curve.streaming_seconds_per_position
    share = f", {100 * streaming / alone:.0f} % of attention's time" if alone > 0 else ""
    lines = [
        f"The line through the points: {_milliseconds(curve.step.seconds)} ms a token, and "
        f"{_milliseconds(1000 * curve.step.seconds_per_position)} ms more for each 1,000 positions, "
        f"{_milliseconds(1000 * alone)} of them in attention, which reads the keys and values of all.",
        f"The {quantity(1000 * curve.kv_bytes_per_position, 'B')} of 1,000 positions could be streamed in "
        f"{_milliseconds(1000 * streaming)} ms{share}.",
    ]
    double = curve.context_that_doubles
    if double is not None:
        lines[-1] += f" At {double:,.0f} positions the context costs as much as all else."
    lines.append(
        "Keys and values were filled in with numbers from -1 to 1, not computed from a prompt: the time depends on how "
        "many there are alone."
    )
    return lines


def context_dict(curve: ContextCurve) -> dict[str, Any]:
    """Plain data, with every point's ledger."""
    return {
        "step": asdict(curve.step),
        "attention": asdict(curve.attention),
        "kv_bytes_per_position": curve.kv_bytes_per_position,
        "streaming_seconds_per_position": curve.streaming_seconds_per_position,
        "context_that_doubles": curve.context_that_doubles,
        "points": [ledger_dict(ledger) for ledger in curve.ledgers],
    }
