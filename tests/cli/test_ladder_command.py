"""``cutaway ladder`` from outside, on the smallest workload and model."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from command import cutaway, cutaway_here

from cutaway.audit.ladder import RUNGS, Rung, RungResult, Workload, mixed_workload
from cutaway.cli.ladder import LEGEND, MOST_REQUESTS
from cutaway.engine.settings import DEFAULT_WAITING, DEFAULT_WAITING_TOKENS
from support.scripted_model import scripted_model, template


def test_table_drawing_and_json(tmp_path: Path) -> None:
    with scripted_model(tmp_path, template(None)) as model:  # of which the file alone is wanted
        path = model.llm.model.path
    svg = tmp_path / "ladder.svg"
    result = cutaway("ladder", path, "--requests", "2", "--svg", str(svg), "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    names = [rung["name"] for rung in report["rungs"]]
    assert names[0] == "no cache"
    assert names[-1] == "chunked prefill"
    assert svg.read_text("utf-8").count("<rect") > len(names)
    told = result.stderr.splitlines()  # no terminal: a line for each rung, as it begins
    assert [any(line.startswith(name) and line.endswith(" …") for line in told) for name in names] == [True] * len(
        names
    )


def test_what_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The table, a sentence for each rung, the legend, of results that were not measured."""

    def climb(load: object, workload: Workload, rungs: Sequence[Rung], told: object) -> Iterator[RungResult]:
        assert len(workload.prompts) == 3
        for number, rung in enumerate(rungs, start=1):
            yield RungResult(
                name=rung.name,
                change=rung.change,
                requests=number,
                answer_tokens=1000 * number,
                seconds=40.0,
                first_token=0.125 * number,
                last_first_token=7.5 * number,
                longest_pause=1.25,
                steps=9,
                pads=3,
                rows=8,
                together=1.5,
                kv_pool=9_000_000,
                kv_reserved=2_570_000 * number,
                kv_used=1_250_000,
                settings=rung.settings,
            )

    monkeypatch.setattr("cutaway.audit.ladder.climb", climb)
    monkeypatch.setenv("COLUMNS", "140")
    svg = tmp_path / "x.svg"
    result = cutaway_here(monkeypatch, capsys, "ladder", "smollm2", "--requests", "3", "--svg", str(svg))
    assert result.returncode == 0, result.stderr
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0].startswith("The ladder: ")
    assert lines[0].endswith(", 3 requests")
    assert lines[1] == "rung requests tok/s first token longest pause together pads reserved used"
    assert lines[2] == "no cache 1 25.0 0.12 s 7.50 s 1.25 s 1.5 38 % 2.57 MB 1.25 MB"
    assert lines[9] == "chunked prefill 8 200.0 1.00 s 60.00 s 1.25 s 1.5 38 % 20.6 MB 1.25 MB"
    assert lines[11:19] == [f"{rung.name}: {rung.change}" for rung in RUNGS]
    assert lines[19:] == ["", LEGEND, f"Drawn: {svg}"]


def test_all_requests_have_a_place_in_the_queue() -> None:
    """Policies that look for similar requests see them all."""
    workload = mixed_workload(MOST_REQUESTS, 40_000)
    assert len(workload.prompts) <= DEFAULT_WAITING
    assert sum(map(len, workload.prompts)) <= DEFAULT_WAITING_TOKENS


def test_what_is_refused(tmp_path: Path) -> None:
    result = cutaway("ladder", "smollm2", "--requests", "1")
    assert (result.returncode, "requests is 1; it must be 2 at least" in result.stderr) == (2, True)
    result = cutaway("ladder", "smollm2", "--requests", str(10**20))
    assert (result.returncode, "and 1024 at most" in result.stderr) == (2, True)
    result = cutaway("ladder", "smollm2", "--svg", str(tmp_path))
    assert (result.returncode, "is a folder" in result.stderr) == (2, True)
    result = cutaway("ladder", "smollm2", "--svg", str(tmp_path / "none" / "x.svg"))
    assert result.returncode == 2
    assert "there is no folder" in result.stderr
    result = cutaway("ladder", "smollm2", "--svg", "/proc/x.svg")  # where not even root writes
    assert (result.returncode, "nothing can be written in /proc" in result.stderr) == (2, True)
