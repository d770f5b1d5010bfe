"""Keys and values that stay: what is reused between requests, and that no setting of the cache changes a bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway import LLM, SamplingParams
from cutaway.engine.outputs import RequestOutput
from cutaway.ops.cpu.arrays import Batch, Floats

PARAMS = SamplingParams(temperature=0.8, seed=3, max_tokens=6, logprobs=2, ignore_eos=True)
IDS = np.random.default_rng(5).integers(100, 40000, 90).tolist()


@pytest.fixture(scope="module")
def fresh(smollm2_path: Path) -> Any:
    """Answers as from an engine that has computed nothing before."""
    with LLM(smollm2_path, threads=2, max_model_len=256) as llm:

        def answer(ids: list[int]) -> RequestOutput:
            llm._engine.cache.clear()
            return llm.generate(ids, PARAMS)[0]

        yield answer


def test_a_hit_is_the_same_as_a_miss(llm: LLM, fresh: Any) -> None:
    """Whole and partial sub-tiles and tiles of attention; prompts shorter than, equal to and longer than the last."""
    last: list[int] = []
    for shared, tail in [(70, 0), (70, 0), (40, 30), (16, 0), (17, 0), (64, 9), (65, 0), (64, 0), (1, 40), (90, 0)]:
        ids = IDS[:shared] + [7] * tail
        output, want = llm.generate(ids, PARAMS)[0], fresh(ids)
        assert output.outputs == want.outputs
        common = next((i for i, (a, b) in enumerate(zip(last, ids, strict=False)) if a != b), min(len(last), len(ids)))
        if last:
            assert output.num_cached_tokens == min(common, len(ids) - 1)
        assert want.num_cached_tokens == 0
        last = ids + output.outputs[0].token_ids[:-1]


def test_what_is_reused_is_not_computed(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    llm.generate(IDS[:70], PARAMS)
    steps: list[int] = []
    step = llm.runner.step

    def counted(batch: Batch) -> Floats:
        steps.append(len(batch.tokens))
        return step(batch)

    monkeypatch.setattr(llm.runner, "step", counted)
    output = llm.generate([*IDS[:70], 5, 6], PARAMS)[0]
    assert steps[0] == 2
    assert output.num_cached_tokens == output.statistics.cached_tokens == 70


def test_choices_share_the_prompt(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    step = llm.runner.step
    monkeypatch.setattr(llm.runner, "step", lambda batch: (steps.append(len(batch.tokens)), step(batch))[1])
    llm._engine.cache.clear()
    output = llm.generate(IDS[:70], SamplingParams(n=3, seed=1, max_tokens=4, ignore_eos=True))[0]
    assert steps == [70, 1, 1, 1] + [1, 1, 1, 1] * 2
    assert len({tuple(each.token_ids) for each in output.outputs}) == 3
    assert output.statistics.generated_tokens == 12


def test_a_broken_off_prompt_leaves_what_was_computed(llm: LLM, fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm.runner, "max_step_tokens", 32)
    step, calls = llm.runner.step, 0

    def breaks(batch: Batch) -> Floats:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return step(batch)

    llm._engine.cache.clear()
    with monkeypatch.context() as patch:
        patch.setattr(llm.runner, "step", breaks)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(IDS, PARAMS)
    output = llm.generate(IDS, PARAMS)[0]
    assert output.num_cached_tokens == 64
    assert output.outputs == fresh(IDS).outputs


@pytest.mark.parametrize("kv_dtype", ["f16", "f32"])
def test_the_setting_of_the_cache_changes_no_bit(smollm2_path: Path, kv_dtype: str) -> None:
    outputs = []
    for kv in ("none", "contiguous", "paged"):
        with LLM(smollm2_path, threads=2, max_model_len=200, kv=kv, kv_dtype=kv_dtype) as llm:
            outputs.append([llm.generate(IDS[:length], PARAMS)[0] for length in (1, 63, 64, 90)])
            reserved = [each.statistics.kv_reserved_bytes for each in outputs[-1]]
            used = [each.statistics.kv_used_bytes for each in outputs[-1]]
            position = llm.runner.kv.position_bytes
            config = llm.runner.config
            width = 2 if kv_dtype == "f16" else 4
            assert position == 2 * config.num_layers * config.num_kv_heads * config.head_dim * width
            lengths = [length + 5 for length in (1, 63, 64, 90)]  # the sixth token is drawn, not computed
            assert used == [0 if kv == "none" else n * position for n in lengths]
            pages = {"none": [0] * 4, "contiguous": [208] * 4, "paged": [16, 80, 80, 96]}[kv]
            assert reserved == [n * position for n in pages]
            assert [each.num_cached_tokens for each in outputs[-1]] == ([0] * 4 if kv == "none" else [0, 1, 63, 64])
    none, contiguous, paged = ([each.outputs for each in some] for some in outputs)
    assert none == contiguous == paged
