"""Keys and values that stay: what is reused between requests, and that no setting of the cache changes a bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway import LLM, SamplingParams
from cutaway.engine.outputs import RequestOutput
from cutaway.memory.kv_setting import PAGE_LENGTH
from cutaway.ops.cpu.arrays import Batch, Floats

PARAMS = SamplingParams(temperature=0.8, seed=3, max_tokens=6, logprobs=2, ignore_eos=True)
IDS = np.random.default_rng(5).integers(100, 40000, 90).tolist()


@pytest.fixture(scope="module")
def fresh(smollm2_path: Path) -> Any:
    """Answers as from an engine that has computed nothing before."""
    with LLM(smollm2_path, threads=2, max_model_len=256, enable_prefix_caching=False) as llm:

        def answer(ids: list[int]) -> RequestOutput:
            return llm.generate(ids, PARAMS)[0]

        yield answer


def test_a_hit_is_the_same_as_a_miss(llm: LLM, fresh: Any) -> None:
    """Whole and partial pages and tiles of attention; prompts shorter than, equal to and longer than those before."""
    llm.reset_prefix_cache()
    computed: list[list[int]] = []
    for shared, tail in [(70, 0), (70, 0), (40, 30), (16, 0), (17, 0), (64, 9), (65, 0), (64, 0), (1, 40), (90, 0)]:
        ids = IDS[:shared] + [7] * tail
        output, want = llm.generate(ids, PARAMS)[0], fresh(ids)
        assert output.outputs == want.outputs
        common = max((_common(ids[:-1], each) for each in computed), default=0)
        assert common // PAGE_LENGTH * PAGE_LENGTH <= output.num_cached_tokens <= common
        assert want.num_cached_tokens == 0
        computed.append(ids + output.outputs[0].token_ids[:-1])


def test_a_sequence_that_goes_on_is_reused_to_its_last_position(llm: LLM, fresh: Any) -> None:
    """At all places within a page, with its answer, of which the last token was drawn and never computed."""
    for length in range(20, 38):
        llm.reset_prefix_cache()
        first = llm.generate(IDS[:length], PARAMS)[0].outputs[0].token_ids
        ids = [*IDS[:length], *first, 8, 9]
        output = llm.generate(ids, PARAMS)[0]
        assert output.num_cached_tokens == length + 5
        assert output.outputs == fresh(ids).outputs
        again = llm.generate(ids, PARAMS)[0]
        assert again.num_cached_tokens >= (length + 7) // PAGE_LENGTH * PAGE_LENGTH
        assert again.outputs == output.outputs


def _common(one: list[int], other: list[int]) -> int:
    """Length of the common beginning."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def test_a_hit_after_the_pool_was_full(smollm2_path: Path, fresh: Any) -> None:
    """Of 8 blocks the prefix has 4 full ones and a part; they are evicted when none is free, the last one first."""
    with LLM(smollm2_path, threads=2, max_model_len=128, kv_tokens=128) as llm:
        cached = []
        for filler in (0, 20, 60, 80, 110):
            assert llm.generate(IDS[:70], PARAMS)[0].outputs == fresh(IDS[:70]).outputs
            if filler:
                llm.generate([9] * filler, PARAMS)
            output = llm.generate(IDS[:70], PARAMS)[0]
            assert output.outputs == fresh(IDS[:70]).outputs
            cached.append(output.num_cached_tokens)
        assert cached == [69, 69, 48, 32, 0]  # with 5 more positions, the fillers take 0, 2, 5, 6 and 8 blocks


def test_what_is_reused_is_not_computed(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    llm.reset_prefix_cache()
    llm.generate(IDS[:70], SamplingParams(max_tokens=1))
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
    llm.reset_prefix_cache()
    output = llm.generate(IDS[:70], SamplingParams(n=3, seed=1, max_tokens=4, ignore_eos=True))[0]
    assert steps == [70, 3, 3, 3]
    assert len({tuple(each.token_ids) for each in output.outputs}) == 3
    assert output.statistics.generated_tokens == 12


def test_a_broken_off_prompt_leaves_what_was_computed(
    smollm2_path: Path, fresh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error reaches who waits for the request; the engine goes on."""
    with LLM(smollm2_path, threads=2, max_model_len=256, max_num_batched_tokens=32) as llm:
        step, calls = llm.runner.step, 0

        def breaks(batch: Batch) -> Floats:
            nonlocal calls
            calls += 1
            if calls == 3:
                raise MemoryError
            return step(batch)

        with monkeypatch.context() as patch:
            patch.setattr(llm.runner, "step", breaks)
            with pytest.raises(MemoryError):
                llm.generate(IDS, PARAMS)
        output = llm.generate(IDS, PARAMS)[0]
        assert output.num_cached_tokens == 64
        assert output.outputs == fresh(IDS).outputs


@pytest.mark.parametrize("kv_dtype", ["f16", "f32", "int8"])
def test_the_setting_of_the_cache_changes_no_bit(smollm2_path: Path, kv_dtype: str) -> None:
    outputs = []
    for kv in ("none", "contiguous", "paged"):
        with LLM(smollm2_path, threads=2, max_model_len=200, kv=kv, kv_dtype=kv_dtype) as llm:
            outputs.append([llm.generate(IDS[:length], PARAMS)[0] for length in (1, 63, 64, 90)])
            reserved = [each.statistics.kv_reserved_bytes for each in outputs[-1]]
            used = [each.statistics.kv_used_bytes for each in outputs[-1]]
            position = llm.runner.kv.position_bytes
            config = llm.runner.config
            number, scale = {"f16": (2, 0), "f32": (4, 0), "int8": (1, 4)}[kv_dtype]
            assert position == 2 * config.num_layers * config.num_kv_heads * (config.head_dim * number + scale)
            lengths = [length + 5 for length in (1, 63, 64, 90)]  # the sixth token is drawn, not computed
            assert used == [0 if kv == "none" else n * position for n in lengths]
            pages = {"none": [0] * 4, "contiguous": [208] * 4, "paged": [16, 80, 80, 96]}[kv]
            assert reserved == [n * position for n in pages]
            cached = [each.num_cached_tokens for each in outputs[-1]]
            assert cached == {"none": [0] * 4, "contiguous": [0, 1, 63, 64], "paged": [0, 1, 48, 64]}[kv]
    none, contiguous, paged = ([each.outputs for each in some] for some in outputs)
    assert none == contiguous == paged
