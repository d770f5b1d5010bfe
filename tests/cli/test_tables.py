"""How ledgers and limits are shown: quantities, a table that fits when piped, plain data that survives JSON."""

import dataclasses
import io
import json

import pytest
from rich.console import Console

from cutaway.audit.ledger import HANDOVER, Ledger, LedgerRow
from cutaway.audit.limits import MachineLimits
from cutaway.cli.tables import (
    PIPED_WIDTH,
    FirstThatFits,
    ledger_dict,
    ledger_summary,
    ledger_table,
    limits_table,
    narrow_ledger_table,
    output_console,
    quantity,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, ""),
        (1, "1 B"),
        (999, "999 B"),
        (999.4, "999 B"),
        (999.6, "1.00 kB"),
        (1000, "1 kB"),
        (1234, "1.23 kB"),
        (98_362_432, "98.4 MB"),
        (130_700_000, "131 MB"),
        (27.26e9, "27.3 GB"),
        (1.5e12, "1.50 TB"),
    ],
)
def test_quantities_have_three_digits(value: float, shown: str) -> None:
    assert quantity(value, "B") == shown


@pytest.fixture
def ledger(limits: MachineLimits) -> Ledger:
    handover = LedgerRow(HANDOVER, 1, "", 0, 0, 0, 0, 0, 0.0001, "", 0.0)
    product = LedgerRow(
        "attention_output_input", 30, "512×1536 · 1536×49152", 10**11, 0, 10**9, 0, 10**9, 2.0, "int8", 1.0
    )
    attention = LedgerRow("attention", 30, "512×9×64 over 512×3×64", 0, 10**9, 0, 10**6, 10**6, 0.5, "float32", 0.05)
    return Ledger(512, 512, (handover, product, attention), (2.4, 2.5, 2.6), limits)


def piped(*renderables: object) -> str:
    output = io.StringIO()
    console = Console(file=output, width=PIPED_WIDTH)
    for renderable in renderables:
        console.print(renderable)
    return output.getvalue()


def test_a_piped_ledger_is_neither_cut_nor_coloured(ledger: Ledger) -> None:
    text = piped(ledger_table(ledger, "Prefill"))
    assert "…" not in text
    assert "\x1b" not in text
    row = next(" ".join(line.split()) for line in text.splitlines() if line.startswith("attention "))
    assert row == "attention 30 512×9×64 over 512×3×64 1,000.000 f32 1.000 1.000 500.000 20.0 float32 10.0"
    total = next(" ".join(line.split()) for line in text.splitlines() if line.startswith("sum"))
    assert total == "sum 61 1,000.000 1.000 1,001.000 2,500.100 100.0 42.0"


def test_a_narrow_ledger_fits_80_columns(ledger: Ledger) -> None:
    table = narrow_ledger_table(ledger, "Prefill")
    output = io.StringIO()
    console = Console(file=output, width=80)
    assert console.measure(table, options=console.options.update(max_width=1000)).maximum <= 80
    console.print(table)
    lines = {line.split()[0]: " ".join(line.split()) for line in output.getvalue().splitlines()}
    assert lines["attention"] == "attention 30 1 G f32 2 MB 500.000 20.0 float32 10.0"
    assert lines["attention_output_input"] == "attention_output_input 30 100 G int8 2 GB 2,000.000 80.0 int8 50.0"
    assert lines["sum"] == "sum 61 2.00 GB 2,500.100 100.0 42.0"


def test_the_limits_table_shows_the_probes_parameters(limits: MachineLimits) -> None:
    text = piped(limits_table(limits))
    assert "2 threads" in text
    assert "10 GB/s" in text
    assert "1.05 MB, 50 % in huge pages" in text
    unknown = dataclasses.replace(limits, huge_page_bytes=None, threads=1)
    assert "page size unknown" in piped(limits_table(unknown))
    assert "1 thread\n" in piped(limits_table(unknown)).replace(" \n", "\n").replace("  ", "")


def test_the_limit_of_matrix_registers_is_shown_where_there_are_any(
    limits: MachineLimits, amx_limits: MachineLimits
) -> None:
    assert "AMX" not in piped(limits_table(limits))
    row = next(line for line in piped(limits_table(amx_limits)).splitlines() if "AMX" in line)
    assert " ".join(row.split()) == "int8 products with AMX 400 Gop/s 200 Gop/s 100 Gop/s 5 matrix registers, full"


def test_the_summary_compares_the_sum_with_the_closed_step(ledger: Ledger) -> None:
    text = "\n".join(ledger_summary(ledger))
    assert "204.8 tokens/s: median of 3 closed steps, 196.9 to 213.3." in text
    assert "add up to 2,500.100 ms, the closed step takes 2,500.000 ms: +0.0 %" in text
    assert "streaming limit" not in text  # this step is bound by its products
    decode = dataclasses.replace(ledger.rows[1], bound="memory", bound_seconds=0.1)
    text = "\n".join(ledger_summary(dataclasses.replace(ledger, tokens=1, rows=(decode,))))
    assert "10.0 tokens/s is the streaming limit, 1 GB of weights and KV at 10 GB/s: 4.0 % of it is reached." in text


def test_plain_data_survives_json(ledger: Ledger) -> None:
    data = json.loads(json.dumps(ledger_dict(ledger)))
    assert data["tokens_per_second"]["median"] == pytest.approx(204.8)
    assert data["deviation"] == pytest.approx(4e-5)
    assert [LedgerRow(**row) for row in data["operations"]] == list(ledger.rows)


def test_output_that_is_no_terminal_has_a_fixed_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    console = output_console()
    assert (console.is_terminal, console.width) == (False, PIPED_WIDTH)


def test_a_narrow_terminal_gets_fewer_columns_and_whole_numbers(limits: MachineLimits) -> None:
    tables = (limits_table(limits), limits_table(limits, narrow=True))
    for width, probed in ((140, True), (80, False)):
        output = io.StringIO()
        Console(width=width, file=output, highlight=False).print(FirstThatFits(*tables))
        text = output.getvalue()
        assert "…" not in text
        assert ("registers" in text) == probed
        assert max(map(len, text.splitlines())) <= width
