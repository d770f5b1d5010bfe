"""The ladder: its workload, its rungs on the real model and a small workload, its drawing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from cutaway import LLM
from cutaway.audit.ladder import (
    EVERY,
    LONG,
    LONG_ANSWER,
    RUNGS,
    SYSTEM,
    RungResult,
    Workload,
    check_context,
    climb,
    mixed_workload,
)
from cutaway.audit.ladder_svg import COLUMNS, ladder_svg
from cutaway.errors import CapacityError

COMMON = list(range(40, 130))  # pages of 16; and all prompts are more than the 256 tokens of a step
SMALL = Workload([COMMON + [5, 6, 7] * length for length in (9, 1, 2, 3, 1, 2)], [4, 2, 3, 1, 5, 2], 128)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def load(smollm2_path: Path) -> Callable[..., LLM]:
    return lambda **settings: LLM(smollm2_path, threads=1, **settings)


@pytest.fixture(scope="module")
def results(load: Callable[..., LLM]) -> dict[str, RungResult]:
    heard: list[str] = []
    found = {result.name: result for result in climb(load, SMALL, RUNGS, heard.append)}
    assert heard[0] == "no cache: loading"
    return found


def test_the_workload() -> None:
    workload = mixed_workload(2 * EVERY, 40_000)
    lengths = [len(prompt) for prompt in workload.prompts]
    assert [number for number, length in enumerate(lengths) if length == LONG] == [0, EVERY]
    assert all(42 <= length < 58 for number, length in enumerate(lengths) if number % EVERY)
    assert len({tuple(prompt[:SYSTEM]) for prompt in workload.prompts}) == 1
    assert len({tuple(prompt[: SYSTEM + 1]) for prompt in workload.prompts}) == 2 * EVERY
    assert all(0 <= token < 40_000 for prompt in workload.prompts for token in prompt)
    assert workload.context == LONG + LONG_ANSWER
    assert workload.part(1) == list(range(24))
    assert workload.part(EVERY) == [1, 13]


def test_a_context_that_is_too_short() -> None:
    check_context(LONG + LONG_ANSWER)
    with pytest.raises(CapacityError, match="longest request has 596 tokens; the model's context holds 595"):
        check_context(595)


def test_every_rung_does_what_it_says(results: dict[str, RungResult]) -> None:
    assert list(results) == [rung.name for rung in RUNGS]
    assert results["no cache"].requests == 1
    assert results["no cache"].answer_tokens == SMALL.answers[1]
    assert results["no cache"].rows == 93 + 94  # a prompt of 93, then 94 positions for the second token
    whole = [result for name, result in results.items() if name != "no cache"]
    assert {result.answer_tokens for result in whole} == {sum(SMALL.answers)}
    assert results["KV cache"].together == 1.0
    assert results["KV cache"].steps == sum(SMALL.answers)
    for name, result in results.items():
        assert (result.pads > 0) == (name in ("static batch", "bucketed")), name
        assert 0 <= result.waste < 1
        assert 0 <= result.kv_used <= result.kv_reserved <= result.kv_pool
        assert 0 < result.first_token <= result.last_first_token <= result.seconds
    prompts = sum(map(len, SMALL.prompts))
    assert results["KV cache"].rows == prompts + sum(SMALL.answers) - len(SMALL.answers)
    assert results["static batch"].rows == 6 * (117 + 4)  # the longest prompt, and the longest answer's later tokens
    assert results["bucketed"].rows < results["static batch"].rows
    assert results["continuous"].rows == results["paged"].rows == results["KV cache"].rows
    assert results["continuous"].steps < results["KV cache"].steps
    assert results["paged"].kv_reserved < results["continuous"].kv_reserved
    assert results["prefix cache"].rows < results["paged"].rows  # beginnings that are shared are computed once
    assert results["chunked prefill"].steps < results["prefix cache"].steps  # prompts and decodes share steps


def test_a_rung_with_other_tokens_is_an_error(load: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch) -> None:
    loads = 0

    def load_another(**settings: Any) -> LLM:
        nonlocal loads
        loads += 1
        llm = load(**settings)
        if loads == 2:
            step = llm.runner.step
            llm.runner.step = lambda batch: step(batch)[:, ::-1].copy()  # type: ignore[method-assign]
        return llm

    with pytest.raises(RuntimeError, match="has other tokens at the rung 'paged' than before"):
        list(climb(load_another, SMALL, [RUNGS[1], RUNGS[5]], lambda text: None))


def test_the_drawing(results: dict[str, RungResult]) -> None:
    svg = fromstring(ladder_svg("Tiny & quick", list(results.values())))
    texts = [element.text for element in svg.iter(SVG + "text")]
    assert "Tiny & quick" in texts
    for rung in RUNGS:
        assert rung.name in texts
        assert rung.change in texts
    for number, column in enumerate(COLUMNS):
        bars = [each for each in svg.iter(SVG + "rect") if each.get("class") == f"bar-{number}"]
        widths = [float(bar.attrib["width"]) for bar in bars]
        values = [
            value(result) for result in results.values() for value in (column.behind, column.value) if value is not None
        ]
        longest = max(values)
        assert widths == pytest.approx([max(widths) * value / longest for value in values], abs=0.02)
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    for element in svg.iter():
        if "x" in element.attrib:
            assert 0 <= float(element.attrib["x"]) <= width
            assert 0 <= float(element.attrib["y"]) <= height
