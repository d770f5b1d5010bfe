"""The ledger of requests: shares add up, costs are those of the step ledger, times are those of the stamps."""

import dataclasses
import json
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from cutaway import LLM, Record, SamplingParams
from cutaway.audit import request_ledger
from cutaway.audit.cost_model import FIELDS, CostModel
from cutaway.audit.costs import Cost, StepWork, step_costs, step_work, works_of
from cutaway.audit.ledger import bound_of, group_rows
from cutaway.audit.limits import MachineLimits
from cutaway.audit.request_ledger import (
    AFTER_LAYERS,
    SharedLedger,
    StepClocks,
    StepMeter,
    TimedStep,
    meter_of,
    shared_ledger,
    works_of_pieces,
)
from cutaway.engine.runner import ModelRunner
from cutaway.engine.step_outcome import SeenPiece, SeenStep, StepOutcome
from cutaway.errors import InvalidRequestError
from cutaway.model.batch import Piece, make_batch

PERIOD = 1e-9


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> Iterator[LLM]:
    with LLM(smollm2_path, threads=2, max_model_len=256) as loaded:
        yield loaded


@pytest.mark.parametrize("level", ["operations", "tensors"])
def test_no_ledger_where_every_step_runs_open(smollm2_path: Path, tmp_path: Path, level: str) -> None:
    """It would have no step."""
    record = Record(tmp_path / "answers.jsonl", level)
    with (
        LLM(smollm2_path, threads=1, max_model_len=32, record=record) as recorded,
        pytest.raises(InvalidRequestError, match="open steps have no clocks"),
    ):
        meter_of(recorded)


def piece(name: str, start: int, tokens: int, outputs: int = 1) -> SeenPiece:
    return SeenPiece(name, (0,), start, tokens, outputs, outputs, 1)


def seen(*pieces: SeenPiece, pads: int = 0) -> SeenStep:
    return SeenStep(0, 0.0, 1e-3, pieces, pads, False, 0, 0, 0, 1, None)


@pytest.mark.parametrize("window", [0, 5, 16, 100])
def test_the_work_of_pieces_is_that_of_their_batch(window: int) -> None:
    parts = [(0, 7, 1), (3, 1, 1), (40, 9, 0), (15, 1, 1), (0, 1, 1)]
    batch = make_batch(
        [Piece(s, list(range(n)), [9 * i + p for p in range(9)], o) for i, (s, n, o) in enumerate(parts)]
    )
    pieces = [piece(str(i), *each) for i, each in enumerate(parts)]
    assert works_of_pieces(pieces, 0, [window]) == {window: step_work(batch, window)}
    assert works_of_pieces(pieces, 3, [window])[window].tokens == len(batch.tokens) + 3


@pytest.mark.parametrize("works", [(1, 1, 30, 30), (17, 0, 200, 40), (256, 32, 9000, 700)])
def test_costs_are_linear(runner: ModelRunner, weight_bytes: dict[str, int], works: tuple[int, int, int, int]) -> None:
    """Any step's costs are those that ``costs`` counts, without asking it."""
    model = CostModel(runner.config, weight_bytes, 384)
    work = {0: StepWork(*works)}
    expected: dict[str, Cost] = {}
    for (name, _), cost in step_costs(runner.config, weight_bytes, work, 384).items():
        before = expected.get(name, Cost(""))
        expected[name] = dataclasses.replace(before, **{f: getattr(before, f) + getattr(cost, f) for f in FIELDS})
    ((found),) = model([work])
    assert model.names == list(expected)
    for name, fields in zip(model.names, found, strict=True):
        assert fields.tolist() == [getattr(expected[name], field) for field in FIELDS], name
        assert model.calls[name] == (1 if name in ("embed", "rope_angles", *AFTER_LAYERS) else 30)


@pytest.fixture
def meter(runner: ModelRunner, weight_bytes: dict[str, int], amx_limits: MachineLimits) -> StepMeter:
    return StepMeter(runner, weight_bytes, amx_limits)


def timed(meter: StepMeter, *steps: SeenStep) -> list[TimedStep]:
    """With cycles of all sizes."""
    count = 1 + len(meter.costs.names)
    return [TimedStep(each, np.arange(1, 1 + count) * (10**6 + 7 * i)) for i, each in enumerate(steps)]


STEPS = (
    seen(piece("a", 0, 40, 0), piece("b", 17, 1)),
    seen(piece("a", 40, 3), piece("b", 18, 1), piece("c", 0, 30), pads=2),
    seen(piece("c", 30, 1)),
)


def test_shares_add_up(meter: StepMeter) -> None:
    steps = timed(meter, *STEPS)
    whole = shared_ledger(meter, steps, None, PERIOD)
    parts = [shared_ledger(meter, steps, frozenset(name), PERIOD) for name in "abc"]
    padded = shared_ledger(meter, [steps[1]], None, PERIOD)
    assert whole.seconds == pytest.approx(sum(each.cycles.sum() for each in steps) * PERIOD)
    assert [each.steps for each in parts] == [2, 2, 2]
    assert sum(each.tokens for each in parts) + 2 == whole.tokens
    for place, row in enumerate(whole.rows):
        rows = [each.rows[place] for each in parts]
        assert {each.name for each in rows} == {row.name}
        # Two of the second step's 36 rows are pads, and nobody's.
        lost = row.name not in (*AFTER_LAYERS, "attention")
        missing = padded.rows[place].seconds * (2 / 36) if lost else 0.0
        assert sum(each.seconds for each in rows) == pytest.approx(row.seconds - missing), row.name
    together = shared_ledger(meter, steps, frozenset("ac"), PERIOD)
    assert together.seconds == pytest.approx(parts[0].seconds + parts[2].seconds)


def test_a_share_is_that_of_rows_logits_and_pairs(meter: StepMeter) -> None:
    (step,) = timed(meter, seen(piece("a", 0, 30, 0), piece("b", 99, 1)))
    rows = {row.name: row for row in shared_ledger(meter, [step], frozenset("b"), PERIOD).rows}
    of = {name: cycles * PERIOD for name, cycles in zip(("handover", *meter.costs.names), step.cycles, strict=True)}
    assert rows["qkv"].seconds == pytest.approx(of["qkv"] / 31)
    assert rows["handover"].seconds == pytest.approx(of["handover"] / 31)
    assert rows["logits"].seconds == pytest.approx(of["logits"])
    assert rows["attention"].seconds == pytest.approx(of["attention"] * 100 / (30 * 31 // 2 + 100))
    width = (9 + 2 * 3) * 64
    assert rows["qkv"].int8_operations == 30 * 2 * 576 * width
    assert rows["attention"].flops == pytest.approx(30 * 100 * 9 * (4 * 64 + 4))


def test_the_bounds_are_those_of_the_step_s_ledger(
    runner: ModelRunner, weight_bytes: dict[str, int], amx_limits: MachineLimits, meter: StepMeter
) -> None:
    """A step with one request: the same rows as the ledger of a batch, with the same limits."""
    for step in (seen(piece("a", 20, 1)), seen(piece("a", 0, 40))):
        (each,) = step.pieces
        batch = make_batch([Piece(each.start, [5] * each.num_tokens, list(range(20)))])
        position_bytes = runner.kv.position_bytes // runner.config.num_layers
        costs = step_costs(runner.config, weight_bytes, works_of(runner.config, batch), position_bytes)
        order = list(costs)
        expected = group_rows(order, [0.0] * (1 + len(order)), costs, amx_limits)
        found = shared_ledger(meter, timed(meter, step), None, PERIOD)
        for row, other in zip(found.rows, expected, strict=True):
            assert (row.name, row.calls) == (other.name, other.calls)
            assert row.bounds == pytest.approx({other.bound: other.bound_seconds} if other.bound else {})
            assert row.int8_operations == other.int8_operations
    assert bound_of(costs["qkv", 0], amx_limits)[0] == "amx"  # 40 rows


def test_a_step_without_logits_reads_no_head(meter: StepMeter) -> None:
    rows = {r.name: r for r in shared_ledger(meter, timed(meter, seen(piece("a", 0, 40, 0))), None, PERIOD).rows}
    assert (rows["logits"].weight_bytes, rows["logits"].bounds) == (0.0, {})
    assert rows["logits"].of_limit is None
    assert rows["logits"].seconds > 0


def watched(
    llm: LLM, weight_bytes: dict[str, int], limits: MachineLimits
) -> tuple[StepClocks, list[str], SharedLedger]:
    meter = StepMeter(llm.runner, weight_bytes, limits)
    clocks = StepClocks(meter)
    llm.engine().call(clocks.begin).result()
    prompts = [[1, *range(300, 320)], [1, *range(500, 512)]]
    outputs = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=6, ignore_eos=True), use_tqdm=False)
    llm.engine().call(clocks.end).result()
    return clocks, [each.request_id for each in outputs], clocks.ledger()


def test_of_requests_that_run_together(llm: LLM, weight_bytes: dict[str, int], limits: MachineLimits) -> None:
    clocks, ids, whole = watched(llm, weight_bytes, limits)
    parts = [clocks.ledger([each]) for each in ids]
    assert [each.tokens for each in parts] == [21 + 5, 13 + 5]
    assert [each.outputs for each in parts] == [6, 6]
    assert sum(each.seconds for each in parts) == pytest.approx(whole.seconds)
    # The operations are most of the steps; beside them there are the sampler and the loop.
    assert 0 < whole.seconds < whole.step_seconds
    assert all(row.seconds > 0 for row in whole.rows)
    data = json.loads(json.dumps(whole.as_dict(), allow_nan=False))
    assert [each["name"] for each in data["operations"]] == [row.name for row in whole.rows]
    assert llm.engine().call(lambda core: list(core.observers)).result() == []


def test_timed_steps_give_the_same_tokens(llm: LLM, weight_bytes: dict[str, int], limits: MachineLimits) -> None:
    params = SamplingParams(temperature=1, seed=4, max_tokens=8, ignore_eos=True)
    prompt = [1, *range(700, 720)]
    plain = llm.generate([prompt], params, use_tqdm=False)[0].outputs[0].token_ids
    clocks = StepClocks(StepMeter(llm.runner, weight_bytes, limits))
    llm.engine().call(clocks.begin).result()
    found = llm.generate([prompt], params, use_tqdm=False)[0].outputs[0].token_ids
    llm.engine().call(clocks.end).result()
    assert found == plain
    assert len(clocks.timed) == 8


def test_where_steps_run_open_there_is_none(smollm2_path: Path, tmp_path: Path, limits: MachineLimits) -> None:
    """It would have no step in it."""
    with (
        LLM(smollm2_path, threads=1, max_model_len=64, record=Record(tmp_path / "a.jsonl", "operations")) as recorded,
        pytest.raises(InvalidRequestError, match="have no clocks"),
    ):
        meter_of(recorded, limits)


def test_steps_of_others_run_as_ever(llm: LLM, weight_bytes: dict[str, int], limits: MachineLimits) -> None:
    """A watcher of one request has none but its steps timed."""
    clocks = StepClocks(StepMeter(llm.runner, weight_bytes, limits), ["nobody's"])
    llm.engine().call(clocks.begin).result()
    llm.generate([[1, 2, 3]], SamplingParams(max_tokens=3), use_tqdm=False)
    llm.engine().call(clocks.end).result()
    assert clocks.timed == []
    empty = clocks.ledger()
    assert (empty.steps, empty.seconds) == (0, 0.0)


def test_the_formulae_in_the_docs(
    runner: ModelRunner, weight_bytes: dict[str, int], meter: StepMeter, llm: LLM, limits: MachineLimits
) -> None:
    """Of any forward, and of what an answer has really taken."""
    document = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text(encoding="utf-8")
    formulae = dict(re.findall(r"^(int8|float32) = (.*)$", document, re.MULTILINE))

    def by_formula(T: int, O: int, A: int) -> list[float]:
        names = {**runner.dimensions, "T": T, "O": O, "A": A}
        return [eval(formulae[kind].replace("·", "*"), {}, names) for kind in ("int8", "float32")]

    for T, O, A in ((1, 1, 100), (64, 1, 64 * 65 // 2), (30, 4, 77), (256, 0, 9999)):
        costs = step_costs(runner.config, weight_bytes, {0: StepWork(T, O, A, 100)}, 384).values()
        assert [sum(c.int8_operations for c in costs), sum(c.flops for c in costs)] == by_formula(T, O, A)
    clocks, _, whole = watched(llm, weight_bytes, limits)
    attended = sum(works_of_pieces(each.seen.pieces, 0, [0])[0].attended for each in clocks.timed if each.seen.pieces)
    found = [sum(row.int8_operations for row in whole.rows), sum(row.flops for row in whole.rows)]
    assert found == pytest.approx(by_formula(whole.tokens, whole.outputs, attended))


class AnyMeter:
    """Says of each step that it ran timed."""

    def read(self, seen: SeenStep) -> TimedStep:
        return TimedStep(seen, np.zeros(30, np.int64))


def test_what_a_ledger_keeps_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of many sequences are kept in fewer numbers; what they are said to take is what they take at most."""
    monkeypatch.setattr(request_ledger, "MOST_BYTES", 1 << 20)
    for count in (1, 40):
        clocks = StepClocks(cast("StepMeter", AnyMeter()))
        tracemalloc.start()
        try:
            for number in range(1500):
                parts = [
                    SeenPiece(f"{number} {i}", (i,), 1000 + number, 1000 + i, 1000 + i, 1000 + i, 1000 + i)
                    for i in range(count)
                ]
                step = SeenStep(1000 + number, number + 0.5, number + 0.25, tuple(parts), 0, False, 0, 0, 0, 1, None)
                outcome = SimpleNamespace(computed=SimpleNamespace(clocks=True), seen=step)
                clocks.stepped(cast("StepOutcome", outcome))
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(clocks.timed) + clocks.left_out == 1500
        assert clocks.left_out > 0
        assert 0.3 * (1 << 20) < taken < 1.05 * (1 << 20)
