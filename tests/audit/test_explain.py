"""Explanations of answers of SmolLM2: they are of the answer that was given, and what they show holds together."""

import dataclasses
import json
import math
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway import LLM, SamplingParams, TapRequest
from cutaway.audit.explain import replay as replay_module
from cutaway.audit.explain.attention import MOST_KEPT, kept_of_head
from cutaway.audit.explain.data import explanation_dict
from cutaway.audit.explain.explanation import MOST_EXPLAINED, Explanation, explain, explain_output
from cutaway.audit.explain.replay import OpenRows, Replay, replay_bytes
from cutaway.audit.explain.steps import watched_steps
from cutaway.audit.lens import end_of_forward, lens_of
from cutaway.audit.limits import MachineLimits
from cutaway.audit.request_ledger import meter_of
from cutaway.audit.walk.vectors import log_softmax
from cutaway.engine.observer import Observer
from cutaway.engine.runner import ModelRunner
from cutaway.engine.step_outcome import StepOutcome
from cutaway.errors import CapacityError, ComputationError, InvalidRequestError
from cutaway.formats.gguf import open_gguf
from cutaway.memory import available, kv_cache, workspace
from cutaway.model.batch import Piece, make_batch
from cutaway.ops.cpu.memory import Arena
from support.tapped import spoil_a_score, tapped_engine
from support.tiny_families import CASES, PROMPTS, write_case

PARAMS = SamplingParams(temperature=0.8, top_p=0.9, repetition_penalty=1.1, seed=5, max_tokens=10)


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> Iterator[LLM]:
    with LLM(smollm2_path, threads=2, max_model_len=1024) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def prompt(llm: LLM) -> list[int]:
    return llm.tokenizer.encode_chat([{"role": "user", "content": "Tell me of the sea."}])


@pytest.fixture(scope="module")
def found(llm: LLM, prompt: list[int]) -> Explanation:
    return explain(llm, prompt, PARAMS)


def test_it_is_the_ordinary_answer(llm: LLM, prompt: list[int], found: Explanation) -> None:
    ordinary = llm.generate([prompt], PARAMS, use_tqdm=False)[0].outputs[0]
    assert [each.id for each in found.tokens] == ordinary.token_ids
    assert (found.text, found.finish_reason) == (ordinary.text, ordinary.finish_reason)
    assert "".join(each.text for each in found.tokens) == ordinary.text
    assert [each.position for each in found.tokens] == list(range(len(prompt), len(prompt) + 10))
    assert [each.id for each in found.sequence] == [*prompt, *ordinary.token_ids]
    assert found.params == {
        "temperature": 0.8,
        "top_p": 0.9,
        "repetition_penalty": 1.1,
        "seed": 5,
        "max_tokens": 10,
    }


def test_the_lens_of_the_last_layer_is_the_logits(llm: LLM, prompt: list[int], found: Explanation) -> None:
    """To the bit; and the lens's last row is what the sampler began with."""
    replay = Replay(llm.runner, len(prompt))
    replay.compute(prompt[:-3])
    (rows,) = replay.open_rows(len(prompt) - 3, prompt[-3:], kept=4)
    lens = end_of_forward(llm.runner, rows.residual[-1])
    assert np.array_equal(lens.view(np.uint32), rows.logits.view(np.uint32))
    for token in found.tokens:
        assert [each.layer for each in token.lens] == list(range(-1, 30))
        last = token.lens[-1]
        winner = token.choice.winner
        assert (last.rank, last.chosen) == (winner.rank, pytest.approx(winner.probabilities["model"], rel=1e-5))
        best = token.choice.candidates[: len(last.guesses)]
        assert [each.id for each in last.guesses] == [each.id for each in best]
        assert [each.probability for each in last.guesses] == pytest.approx(
            [each.probabilities["model"] for each in best], rel=1e-5
        )


def test_a_lens_row_is_what_log_softmax_says(llm: LLM) -> None:
    residual = np.random.default_rng(1).normal(size=(2, 1, llm.runner.config.width)).astype(np.float32)
    ((_, row),) = lens_of(llm.runner, llm.tokenizer.piece, residual, [77], 3)
    exact = np.exp(log_softmax(end_of_forward(llm.runner, residual[1])[0]))
    assert row.chosen == pytest.approx(exact[77], rel=1e-5)
    assert row.rank == 1 + int((exact > exact[77]).sum())
    assert [each.id for each in row.guesses] == np.argsort(-exact, kind="stable")[:3].tolist()


def test_the_open_rows_are_those_of_steps_of_any_kind(llm: LLM, prompt: list[int]) -> None:
    """All rows at once, or the last alone: the same bits, and the engine's own."""
    whole = Replay(llm.runner, len(prompt))
    (together,) = whole.open_rows(0, prompt, kept=4)
    alone = Replay(llm.runner, len(prompt))
    alone.compute(prompt[:-1])
    (last,) = alone.open_rows(len(prompt) - 1, prompt[-1:], kept=4)
    assert np.array_equal(together.residual[:, -1], last.residual[:, 0])
    assert together.looked[-1].average == last.looked[0].average
    assert np.array_equal(together.looked[-1].positions, last.looked[0].positions)
    assert np.array_equal(together.looked[-1].probabilities, last.looked[0].probabilities)
    assert np.array_equal(together.logits[-1], last.logits[0])
    assert last.start == len(prompt) - 1


def test_attention_sums_to_one(found: Explanation) -> None:
    for token in found.tokens:
        looked = token.looked
        assert 0.5 < sum(p for _, p in looked.average) <= 1 + 1e-9
        assert [p for _, p in looked.average] == sorted((p for _, p in looked.average), reverse=True)
        assert all(0 <= place < token.position for place, _ in looked.average)
        assert looked.positions.shape == looked.probabilities.shape == (30, 9, 4)
        assert (looked.positions < token.position).all()
        assert (np.diff(looked.probabilities, axis=-1) <= 0).all()
        assert (looked.probabilities.sum(axis=-1) <= 1 + 1e-5).all()
        # The average's first is among the heads': what they keep of it is part of it.
        place, p = looked.average[0]
        kept = float(looked.probabilities[looked.positions == place].sum()) / (30 * 9)
        assert 0.5 * p < kept <= p * (1 + 1e-6)


def test_all_of_a_few_rows_sums_to_one(llm: LLM, prompt: list[int]) -> None:
    """With nothing left out, each head's row is whole."""
    replay = Replay(llm.runner, 4)
    (rows,) = replay.open_rows(0, prompt[:4], kept=4)
    for t, looked in enumerate(rows.looked):
        assert looked.probabilities.sum(axis=-1) == pytest.approx(1, abs=1e-6)
        assert ((looked.positions >= 0).sum(axis=-1) == t + 1).all()
        assert sum(p for _, p in looked.average) == pytest.approx(1)


@pytest.mark.parametrize("name", CASES)
def test_rows_of_every_family(tmp_path: Path, name: str) -> None:
    """With windows, soft caps, scaled embeddings, learnt positions: rows beyond every window, closed before them."""
    ids = list(PROMPTS.values())[-1]
    with (
        open_gguf(write_case(tmp_path / "tiny.gguf", name)) as gguf,
        ModelRunner(gguf, threads=2, context=128) as runner,
    ):
        replay = Replay(runner, len(ids))
        replay.compute(ids[:60])
        (rows,) = replay.open_rows(60, ids[60:], kept=len(ids))
        closed = runner.step(make_batch([Piece(0, ids, list(range(runner.kv.num_pages)))]))
        assert np.array_equal(rows.logits[-1].view(np.uint32), closed[0].view(np.uint32))
        lens = end_of_forward(runner, rows.residual[-1])
        assert np.array_equal(lens.view(np.uint32), rows.logits.view(np.uint32))
    windows = np.array(runner.config.windows)
    for looked, position in zip(rows.looked, range(60, len(ids)), strict=True):
        assert looked.probabilities.sum(axis=-1) == pytest.approx(1, abs=1e-5)
        seen = (looked.positions >= 0).sum(axis=-1)
        assert (seen <= np.where(windows, windows, position + 1)[:, None]).all()


@pytest.mark.parametrize("name", CASES)
def test_what_is_kept_is_what_taps_show(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts of a few rows, the same as the whole rows of attn.weights: their largest, and their average."""
    monkeypatch.setattr(replay_module, "MOST_AT_ONCE", 1000)
    ids = list(PROMPTS.values())[-1]
    path = write_case(tmp_path / "tiny.gguf", name)
    with tapped_engine(path) as engine:
        asking = engine.ask(ids, SamplingParams(max_tokens=1), TapRequest("attn.weights"))
        engine.run()
        taps = asking.output().taps
        replay = Replay(engine.runner, len(ids))
        replay.compute(ids[:-5])
        (rows,) = replay.open_rows(len(ids) - 5, ids[-5:], kept=3)
        num_layers = engine.runner.config.num_layers
    assert taps is not None
    whole = np.stack([taps[f"layers.{layer}.attn.weights"].values[-5:] for layer in range(num_layers)], axis=1)
    for weights, looked in zip(whole, rows.looked, strict=True):  # [L, H, C]
        assert np.array_equal(looked.probabilities, -np.sort(-weights, axis=-1)[..., :3])
        there = np.take_along_axis(weights, np.maximum(looked.positions, 0), -1)
        assert np.array_equal(np.where(looked.positions < 0, 0, there), looked.probabilities)
        average = weights.mean(axis=(0, 1), dtype=np.float64)
        assert [p for _, p in looked.average] == pytest.approx([average[place] for place, _ in looked.average])
        assert looked.average[0][1] == pytest.approx(average.max())


def test_attention_that_is_not_the_engine_s_is_not_shown(
    llm: LLM, prompt: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil_a_score(monkeypatch)
    with pytest.raises(ComputationError, match="the derived attention of layer 0 is wrong"):
        explain(llm, prompt, PARAMS)


def test_the_funnel_narrows(found: Explanation) -> None:
    for token in found.tokens:
        kept = [step.kept for step in token.choice.steps]
        assert kept == sorted(kept, reverse=True)
        assert [step.name for step in token.choice.steps if step.changed][:2] == ["penalties", "temperature"]
        assert token.choice.winner.probabilities["top_p"] > 0


def test_every_token_has_its_step(found: Explanation, prompt: list[int]) -> None:
    numbers = [each.number for each in found.steps]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert [token.step for token in found.tokens] == numbers[-len(found.tokens) :]
    first = found.steps[0]
    (piece,) = first.pieces
    assert (piece.request_id, piece.start + piece.num_tokens, piece.sampled) == (found.request_id, len(prompt), 1)
    for each in found.steps:
        assert each.seconds > 0
        (piece,) = each.pieces
        assert piece.blocks == -(-(piece.start + piece.num_tokens) // found.block_length)
        assert each.blocks_held == piece.blocks
    actions = [(each.name, each.action) for each in found.decisions]
    assert actions == [(found.request_id, "admitted"), (found.request_id, "ended")]


def test_among_others_and_with_a_cached_prompt(llm: LLM, prompt: list[int], found: Explanation) -> None:
    """The explanation is of the sequence, whoever else is in the batch; the others are seen in the steps."""
    lasting = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    other = llm.stream([prompt[0], *range(300, 340)], lasting)
    next(other)
    again = explain(llm, prompt, PARAMS)
    assert sum(len(delta.token_ids) for delta in other) == 59
    assert again.statistics.cached_tokens > 0
    assert [each.id for each in again.tokens] == [each.id for each in found.tokens]
    for one, two in zip(again.tokens, found.tokens, strict=True):
        assert one.lens == two.lens
        assert one.choice == two.choice
        assert np.array_equal(one.looked.probabilities, two.looked.probabilities)
    assert any(len(each.pieces) > 1 for each in again.steps)


def test_an_answer_that_was_not_given_is_not_explained(llm: LLM, prompt: list[int]) -> None:
    """The open run is the judge."""
    output = llm.generate([prompt], PARAMS, use_tqdm=False)[0]
    output.outputs[0].token_ids[4] ^= 1
    with pytest.raises(ComputationError, match=rf"position {len(prompt) + 4} has token \d+, and the open run chooses"):
        explain_output(llm, output, PARAMS)


def test_structured_answers_too(llm: LLM, prompt: list[int]) -> None:
    params = SamplingParams(temperature=1, seed=2, max_tokens=8, structured_outputs={"choice": ["salt", "water"]})
    seen = explain(llm, prompt, params)
    assert seen.text in ("salt", "water")
    assert all(step.kept < 100 for step in seen.tokens[0].choice.steps if step.name == "masks")
    json.dumps(explanation_dict(seen), allow_nan=False)


def test_memory_is_asked_for_before_anything_is_computed(
    llm: LLM, prompt: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = replay_bytes(llm.runner, len(prompt) + 9, 10, 4)
    before = llm.totals()
    monkeypatch.setattr(available, "available_bytes", lambda: needed - 1)
    said = rf"explaining 10 tokens behind {len(prompt)}.* takes {needed:,} bytes, and {needed - 1:,} are available"
    with pytest.raises(CapacityError, match=said):
        explain(llm, prompt, PARAMS)
    assert llm.totals() == before
    monkeypatch.setattr(available, "available_bytes", lambda: needed)
    assert len(explain(llm, prompt, PARAMS).tokens) == 10


def test_the_memory_that_is_asked_for_is_what_is_taken(
    llm: LLM, prompt: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks as they are mapped, and what NumPy and Python allocate, as the interpreter traces it."""
    output = llm.generate([prompt], PARAMS, use_tqdm=False)[0]
    explain_output(llm, output, PARAMS)  # what is compiled or kept once
    blocks: list[int] = []

    class Counted(Arena):
        def __init__(self, size: int) -> None:
            blocks.append(size)
            super().__init__(size)

    monkeypatch.setattr(workspace, "Arena", Counted)
    monkeypatch.setattr(kv_cache, "Arena", Counted)
    tracemalloc.start()
    try:
        explain_output(llm, output, PARAMS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    pool, closed, opened, *lenses = blocks
    taken = pool + max(closed, opened + max(lenses)) + peak
    needed = replay_bytes(llm.runner, len(prompt) + 9, 10, 4)
    assert 0.4 * needed < taken < needed + 4e6  # objects of Python, beside


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"n": 2}, "n is 2"), ({"max_tokens": MOST_EXPLAINED + 1}, "max_tokens is 1025"), ({"max_tokens": None}, "None")],
)
def test_what_is_refused(llm: LLM, prompt: list[int], changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        explain(llm, prompt, dataclasses.replace(PARAMS, **changes))


def test_what_is_kept_of_heads_is_bounded(llm: LLM) -> None:
    config = llm.runner.config
    assert kept_of_head(10, config) == 4
    for rows in (200, 1000, 1024):
        kept = kept_of_head(rows, config)
        assert kept == 1 or rows * 270 * kept <= MOST_KEPT
    assert kept_of_head(100_000, config) == 1


def test_an_observer_that_fails_harms_nobody(llm: LLM, prompt: list[int]) -> None:
    class Broken(Observer):
        def stepped(self, outcome: StepOutcome) -> None:
            raise ValueError("an observer's own fault")

    llm.engine().call(lambda core: core.observers.append(Broken())).result()
    with pytest.warns(UserWarning, match="an observer's own fault"):
        output = llm.generate([prompt], PARAMS, use_tqdm=False)[0]
    assert len(output.outputs[0].token_ids) == 10
    assert llm.engine().call(lambda core: list(core.observers)).result() == []


def test_as_data(found: Explanation) -> None:
    data = json.loads(json.dumps(explanation_dict(found), allow_nan=False))
    token, seen = data["tokens"][3], found.tokens[3]
    assert (token["id"], token["step"]) == (seen.id, seen.step)
    assert token["lens"][0]["layer"] == -1
    assert token["attention"]["average"][0] == list(seen.looked.average[0])
    first = token["attention"]["heads"][2][1][0]
    assert first == [int(seen.looked.positions[2, 1, 0]), float(seen.looked.probabilities[2, 1, 0])]
    assert data["steps"][0]["pieces"][0]["request_id"] == found.request_id
    assert all(str(each["id"]) in data["pieces"] for each in data["prompt"])


def test_rows_hold_what_they_say(llm: LLM, prompt: list[int]) -> None:
    (rows,) = Replay(llm.runner, 3).open_rows(0, prompt[:3], kept=2)
    config = llm.runner.config
    assert isinstance(rows, OpenRows)
    assert rows.residual.shape == (config.num_layers + 1, 3, config.width)
    assert [each.positions.shape for each in rows.looked] == 3 * [(config.num_layers, config.num_heads, 2)]
    assert rows.logits.shape == (3, config.vocab_size)
    assert math.isfinite(float(rows.residual.sum()))


def test_an_answer_that_fails_leaves_no_watcher(llm: LLM, limits: MachineLimits) -> None:
    """Neither of both, whatever ends the watching."""
    watching = watched_steps(llm, meter_of(llm, limits))
    seen = watching.__enter__()
    assert llm.engine().call(lambda core: list(core.observers)).result() == [seen.keeper, seen.clocks]
    error = ZeroDivisionError()
    assert not watching.__exit__(type(error), error, None)
    assert llm.engine().call(lambda core: list(core.observers)).result() == []
