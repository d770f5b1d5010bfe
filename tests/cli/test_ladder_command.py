"""``cutaway ladder`` from outside, on the smallest workload."""

import json
from pathlib import Path

from command import cutaway

from cutaway.audit.ladder import mixed_workload
from cutaway.cli.ladder import MOST_REQUESTS
from cutaway.engine.settings import DEFAULT_WAITING, DEFAULT_WAITING_TOKENS


def test_table_drawing_and_json(tmp_path: Path) -> None:
    svg = tmp_path / "ladder.svg"
    result = cutaway("ladder", "smollm2", "--requests", "2", "--svg", str(svg), "--json")
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
