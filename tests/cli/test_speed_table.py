"""llama-bench's table: a row for each test, another engine beside Cutaway, ratios round by round."""

import io
import json

import pytest
from rich.console import Console

from cutaway.audit.speed import OURS, Speed, workloads
from cutaway.cli.speed_table import speed_dict, speed_explanation, speed_table

RATES = ((1000.0, 1500.0, 1250.0), (100.0, 90.0, 110.0), (700.0, 800.0, 900.0))


def speeds(against: bool) -> list[Speed]:
    found = []
    for work, ours in zip(workloads(512, 8192, 8192), RATES, strict=True):
        rates = {OURS: ours} | ({"llama.cpp": (ours[0] / 2, ours[1] / 2, ours[2])} if against else {})
        found.append(Speed(work, rates))
    return found


def lines_of(table: object, width: int = 140) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=width).print(table)
    assert "…" not in output.getvalue()
    return [" ".join(line.split()) for line in output.getvalue().splitlines()]


def test_a_row_for_each_test() -> None:
    lines = lines_of(speed_table(speeds(against=False)), width=80)
    assert lines[:2] == ["Speed, tokens a second", "test Cutaway [slowest, fastest]"]
    assert "pp512 1,250.0 [1,000.0, 1,500.0]" in lines
    assert "tg128 100.0 [90.0, 110.0]" in lines
    assert "16×tg32 800.0 [700.0, 900.0]" in lines


def test_another_engine_stands_beside_with_ratios() -> None:
    lines = lines_of(speed_table(speeds(against=True)))
    assert lines[1] == "test Cutaway [slowest, fastest] llama.cpp [slowest, fastest] Cutaway / llama.cpp"
    assert "tg128 100.0 [90.0, 110.0] 50.0 [45.0, 110.0] 2.00 [1.00, 2.00]" in lines


@pytest.mark.parametrize("against", [False, True])
def test_the_names_are_explained(against: bool) -> None:
    size, names, how = speed_explanation(speeds(against), "tiny", 96_600_000, 1)
    assert size == "tiny, 96.6 MB of weights, 1 thread."
    assert "pp512: a prompt of 512 tokens" in names
    assert "16×tg32: 16 answers of 32 together" in names
    assert "medians of 3 rounds" in how
    assert ("take turns" in how) == against


def test_plain_data_survives_json() -> None:
    data = json.loads(json.dumps(speed_dict(speeds(against=True), {"llama.cpp": {"version": "1"}})))
    assert [test["name"] for test in data["tests"]] == ["pp512", "tg128", "16×tg32"]
    assert data["tests"][0]["tokens_per_second"][OURS] == [1000.0, 1500.0, 1250.0]
    assert data["engines"]["llama.cpp"]["version"] == "1"
