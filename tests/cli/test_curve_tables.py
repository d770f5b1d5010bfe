"""How the curves are shown: bars to scale, sentences that follow from the numbers, plain data that survives JSON."""

import dataclasses
import io
import json

import pytest
from rich.console import Console

from cutaway.audit.curves import BatchCurve, ContextCurve
from cutaway.audit.limits import MachineLimits
from cutaway.cli.curve_tables import (
    BAR_WIDTH,
    bar,
    batch_dict,
    batch_explanation,
    batch_table,
    context_dict,
    context_explanation,
    context_table,
)
from cutaway.cli.tables import PIPED_WIDTH, unrest
from support.ledgers import invented_ledger


@pytest.mark.parametrize(
    ("value", "drawn"),
    [(0, ""), (1, ""), (2, "▌"), (25, "█" * 6), (48, "█" * 11 + "▌"), (50, "█" * 12), (100, "█" * 24)],
)
def test_a_bar_is_to_scale_in_halves(value: float, drawn: str) -> None:
    assert BAR_WIDTH == 24
    assert bar(value, 100) == drawn


def test_of_nothing_there_is_no_bar() -> None:
    assert bar(0, 0) == ""


@pytest.fixture
def batch(limits: MachineLimits) -> BatchCurve:
    """100, 190 and 200 tokens/s."""
    one = invented_ledger(limits, 1, 128, closed=0.010, qkv=0.002, logits=0.004, attention=0.001, other=0.002)
    two = invented_ledger(limits, 2, 128, closed=2 / 190, qkv=0.003, logits=0.004, attention=0.002, other=0.001)
    four = invented_ledger(
        limits, 4, 128, closed=0.02, qkv=0.007, logits=0.005, attention=0.005, other=0.002, bounds={"qkv": "int8"}
    )
    return BatchCurve((one, two, four))


@pytest.fixture
def context(limits: MachineLimits) -> ContextCurve:
    """4 ms, and 2 µs more for each position, half of them in attention."""
    return ContextCurve(
        tuple(
            invented_ledger(
                limits, 1, n, closed=0.004 + 2e-6 * n, qkv=0.003, logits=0.001, attention=1e-6 * n, other=0.0
            )
            for n in (1, 1000, 8192)
        )
    )


def lines_of(table: object) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=PIPED_WIDTH).print(table)
    assert "…" not in output.getvalue()
    assert "\x1b" not in output.getvalue()
    return [" ".join(line.split()) for line in output.getvalue().splitlines()]


def test_the_batch_table_has_a_row_for_each_point(batch: BatchCurve) -> None:
    lines = lines_of(batch_table(batch, "Batch"))
    # 4 MB of weights in 6 ms; 8 million operations in 6 ms.
    assert f"1 100 {bar(1, 2)} 10.00 6.00 1.00 2.00 667 MB/s 1.33 Gop/s memory" in lines
    assert f"4 200 {'█' * BAR_WIDTH} 20.00 12.00 5.00 2.00 333 MB/s 2.67 Gop/s memory and int8" in lines


def test_the_batch_is_explained_from_its_numbers(batch: BatchCurve) -> None:
    products, crossing, gain, cost = batch_explanation(batch)
    assert "4 MB of weights once a step" in products
    assert "4 rows take 2.0 times the products' time of 1" in products
    assert "each row's own: 5.0 times" in products
    assert "the bytes of qkv from 4 rows on. Measured, at 4 rows they reach 3 % of the int8 limit." in crossing
    assert gain == "The gain ends at 2 rows: they reach 95 % of the most, 200 tokens/s at 4 rows."
    assert "From 2 to 4 rows, one more row costs 4.50 ms (2.50 products, 1.50 attention, 0.50 other)." in cost
    assert "Each of 2 costs 5.00 ms, a single one 9.00 ms." in cost


def test_many_rows_are_compared_with_the_limit_of_matrix_registers(amx_limits: MachineLimits) -> None:
    """32 rows of 4 million operations in two products: 256 million in 12 ms."""
    times = {"qkv": 0.007, "logits": 0.005, "attention": 0.005, "other": 0.002}
    few, many = (
        invented_ledger(amx_limits, rows, 128, closed=0.02, bounds={"qkv": bound}, **times)
        for rows, bound in ((1, "memory"), (32, "amx"))
    )
    crossing = batch_explanation(BatchCurve((few, many)))[1]
    assert "the bytes of qkv from 32 rows on. Measured, at 32 rows they reach 5 % of the amx limit." in crossing


def test_what_did_not_happen_is_not_claimed(batch: BatchCurve) -> None:
    assert batch_explanation(BatchCurve(batch.ledgers[:1])) == []
    two = batch_explanation(BatchCurve(batch.ledgers[:2]))
    assert "streaming the weights takes longer than the dot products, at all these rows" in two[1]
    assert two[2] == "Up to 2 rows there is a gain: 190 tokens/s."
    falling = BatchCurve((*batch.ledgers[:2], batch.ledgers[0], batch.ledgers[1], batch.ledgers[0]))
    assert "The gain ends at 2 rows with 190 tokens/s." in batch_explanation(falling)


def test_a_busy_machine_is_told_of(batch: BatchCurve) -> None:
    def with_fastest(part: float) -> BatchCurve:
        return BatchCurve(
            tuple(
                dataclasses.replace(ledger, closed_seconds=(part * ledger.closed_median, *ledger.closed_seconds * 2))
                for ledger in batch.ledgers
            )
        )

    assert unrest(with_fastest(0.9).ledgers) == []
    assert unrest(with_fastest(0.5).ledgers) == [
        "The machine was busy: a step took 2.0 times as long as the fastest, and some operations still more. "
        "Measure again when it is quiet."
    ]
    # The timed steps count, too: their operations are what is shown.
    first = batch.ledgers[0]
    slow = dataclasses.replace(first, rows=tuple(dataclasses.replace(each, seconds=1.0) for each in first.rows))
    assert len(unrest([slow])) == 1


def test_the_context_table_has_a_row_for_each_point(context: ContextCurve) -> None:
    lines = lines_of(context_table(context, "Context"))
    assert f"1,000 6.00 {bar(0.006, 0.020384)} 167 1.00 0.10 0.01" in lines
    assert f"8,192 20.38 {'█' * BAR_WIDTH} 49 8.19 0.82 0.08" in lines


def test_the_context_is_explained_from_its_numbers(context: ContextCurve) -> None:
    line, streaming, filled = context_explanation(context)
    assert "4.00 ms a token, and 2.00 ms more for each 1,000 positions, 1.00 of them in attention" in line
    assert "The 100 kB of 1,000 positions could be streamed in 0.01 ms, 1 % of attention's time." in streaming
    assert "At 2,000 positions the context costs as much as all else." in streaming
    assert "not computed from a prompt" in filled


def test_a_context_that_costs_nothing_is_explained_without_it(limits: MachineLimits) -> None:
    flat = ContextCurve(
        tuple(
            invented_ledger(limits, 1, n, closed=0.004, qkv=0.003, logits=0.001, attention=0.0, other=0.0)
            for n in (1, 64)
        )
    )
    text = "\n".join(context_explanation(flat))
    assert "% of attention's" not in text
    assert "as much as all else" not in text


def test_plain_data_survives_json(batch: BatchCurve, context: ContextCurve) -> None:
    data = json.loads(json.dumps({"batch": batch_dict(batch), "context": context_dict(context)}))
    assert [point["rows"] for point in data["batch"]["points"]] == [1, 2, 4]
    assert data["batch"]["points"][0]["seconds"] == pytest.approx(
        {"products": 0.006, "attention": 0.001, "other": 0.002}
    )
    assert (data["batch"]["gain_ends"], data["batch"]["most_tokens_per_second_at"]) == (2, 4)
    assert data["batch"]["bound_by_arithmetic_from"] == {"qkv": 4}
    assert data["batch"]["seconds_for_one_more_row"]["products"] == pytest.approx(0.0025)
    assert [point["context"] for point in data["context"]["points"]] == [1, 1000, 8192]
    assert data["context"]["step"] == pytest.approx({"seconds": 0.004, "seconds_per_position": 2e-6})
