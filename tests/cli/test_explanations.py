"""The explanation of an answer in the terminal and in files, as commands offer it."""

import dataclasses
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import cutaway
from rich.console import Console

from cutaway import LLM, SamplingParams
from cutaway.audit.explain.explanation import Explanation, explain
from cutaway.audit.limits import MachineLimits
from cutaway.audit.request_ledger import meter_of
from cutaway.cli.console import error_console
from cutaway.cli.explain_text import explanation_pages, leads_from, sparkline
from cutaway.cli.report import AskedExplanation
from cutaway.cli.tables import print_whole
from cutaway.cli.walk_text import quoted
from cutaway.errors import InvalidRequestError

PARAMS = SamplingParams(temperature=0.9, top_p=0.8, seed=3, max_tokens=5)


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> Iterator[LLM]:
    with LLM(smollm2_path, threads=2, max_model_len=256) as loaded:
        yield loaded


@pytest.fixture
def found(llm: LLM, limits: MachineLimits) -> Explanation:
    return explain(llm, [1, *range(300, 312)], PARAMS, meter=meter_of(llm, limits))


def printed(pages: Any) -> str:
    output = io.StringIO()
    print_whole(Console(file=output, width=140), pages)
    return output.getvalue()


def test_every_token_has_a_line(found: Explanation) -> None:
    lines = printed(explanation_pages(found)).splitlines()
    for token in found.tokens:
        (line,) = (each for each in lines if each.startswith(f"{token.position} "))
        steps = token.choice.steps
        assert f" {steps[-1].kept:,} " in line
        layer = leads_from(token)
        assert (layer is None) == (token.lens[-1].rank != 1)
        assert layer is None or all(row.rank == 1 for row in token.lens[layer + 1 :])
    assert any(line.startswith("What it took: its share of 5 steps, 17 rows") for line in lines)
    assert "How" not in printed(explanation_pages(found))


def test_one_token_in_full(found: Explanation) -> None:
    token = found.tokens[0]
    text = printed(explanation_pages(found, [token.position]))
    named = quoted(token.piece)
    assert named[0] + named[-1] == "‹›"
    assert f"How {named} at {token.position} was chosen" in text
    assert f"in place of {named}\n" in text
    for step in token.choice.steps:
        assert any(line.startswith(step.name) and f" {step.kept:,} " in line for line in text.splitlines())
    assert len([line for line in text.splitlines() if line.split()[:1] in (["0"], ["29"], ["emb."])]) >= 3
    changed = [step.name for step in token.choice.steps if step.changed]
    gone = sum(each.probabilities[name] == 0 for each in token.choice.candidates for name in changed)
    assert text.count("dropped") == gone


def test_what_looks_like_markup_is_a_token(found: Explanation, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = [dataclasses.replace(each, piece="[/b]") for each in found.tokens]
    changed = dataclasses.replace(found, tokens=tuple(tokens))
    print_whole(error_console(), explanation_pages(changed, [found.tokens[0].position]))
    assert "How ‹[/b]› at" in (said := capsys.readouterr().err)
    assert len([line for line in said.splitlines() if line.split()[1:2] == ["[/b]"]]) == len(tokens)


def test_a_token_that_is_not_there(llm: LLM, tmp_path: Path) -> None:
    """It is told behind the whole explanation."""
    asked = AskedExplanation(tmp_path / "a.html", None, in_terminal=True, places=(4, 99))
    output = io.StringIO()
    with asked.watching(llm, with_ledger=False) as finish:
        answer = llm.generate([[1, 5, 6, 7]], PARAMS, use_tqdm=False)[0]
    with pytest.raises(InvalidRequestError, match="--at is 99; the answer has the positions 4 to 8"):
        finish(answer, PARAMS, Console(file=output, width=140))
    assert "The answer, token by token" in output.getvalue()
    assert output.getvalue().count("was chosen") == 1
    assert (tmp_path / "a.html").exists()


def test_files_and_the_terminal(llm: LLM, tmp_path: Path) -> None:
    asked = AskedExplanation(tmp_path / "a.html", tmp_path / "a.json", in_terminal=True, places=(4, 6))
    asked.check(PARAMS)
    output = io.StringIO()
    with asked.watching(llm, with_ledger=False) as finish:
        answer = llm.generate([[1, 5, 6, 7]], PARAMS, use_tqdm=False)[0]
    finish(answer, PARAMS, Console(file=output, width=140))
    data = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert [each["id"] for each in data["tokens"]] == answer.outputs[0].token_ids
    assert data["ledger"] is None
    assert (tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "The answer, token by token" in output.getvalue()
    assert "a.html" in output.getvalue()
    assert all(f"at {place} was chosen" in output.getvalue() for place in (4, 6))
    assert output.getvalue().count("If the model had ended earlier") == 2
    assert llm.engine().call(lambda core: list(core.observers)).result() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.json"]


def test_trace_with_a_report(tmp_path: Path) -> None:
    """Without taps there is no folder; the answer is on standard output alone."""
    asked = (
        "--report",
        "a.html",
        "--explanation",
        "a.json",
        "--max-tokens",
        "3",
        "--seed",
        "1",
        "--temperature",
        "0.6",
    )
    result = cutaway("trace", "smollm2", "Name a river.", *asked, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    data = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert result.stdout == data["text"] + "\n"
    assert data["ledger"]["steps"] == 3
    assert " · length limit · temperature 0.6, top-p 0.9 · seed 1\n" in result.stderr
    assert "explaining 3 tokens …\n" in result.stderr
    assert "a.html: open it in a browser" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.json"]


def test_nothing_asked_nothing_watched(llm: LLM) -> None:
    asked = AskedExplanation(None, None, in_terminal=False)
    asked.check(SamplingParams(n=3))
    with asked.watching(llm):
        assert llm.engine().call(lambda core: list(core.observers)).result() == []
    assert llm.engine().call(lambda core: list(core.observers)).result() == []


def test_what_is_refused_before_the_work(tmp_path: Path) -> None:
    for asked, params, said in (
        (AskedExplanation(tmp_path, None, False), PARAMS, "--report .* is a folder"),
        (AskedExplanation(None, tmp_path / "no" / "a.json", False), PARAMS, "--explanation .*there is no folder"),
        (AskedExplanation(None, None, True), SamplingParams(max_tokens=5000), "max_tokens is 5000"),
        (AskedExplanation(tmp_path / "a.html", None, False, (3,)), PARAMS, "no --explain"),
    ):
        with pytest.raises(InvalidRequestError, match=said):
            asked.check(params)


def test_bars() -> None:
    assert sparkline([0, 1, 2, 4, 8]) == "▁▂▃▅█"
    assert sparkline([3] * 120) == "█" * 60
    assert sparkline([]) == ""


def test_two_results_have_two_places(tmp_path: Path) -> None:
    """The second would take the first one's place; by another name of the same file, too."""
    path, link = tmp_path / "a.html", tmp_path / "link"
    link.symlink_to(path)
    for out, report, data, options in (
        (None, path, path, "--report and --explanation are both"),
        (None, path, link, "--report and --explanation are both"),
        (path, path, None, "--out and --report are both"),
    ):
        with pytest.raises(InvalidRequestError, match=options):
            AskedExplanation(report, data, in_terminal=False).check(PARAMS, out)
    AskedExplanation(path, tmp_path / "b.json", in_terminal=False).check(PARAMS, tmp_path / "trace")


def test_what_is_no_file_is_told_before_the_work(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/null")):
        with pytest.raises(InvalidRequestError, match="pipe or device"):
            AskedExplanation(path, None, in_terminal=False).check(PARAMS)
