"""Embeddings from a real model: near the reference's, the same bits whatever the engine does, and the cache's part."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cutaway import LLM, AsyncEngine, CutawayError, SamplingParams
from cutaway.engine.pooling import Pool
from cutaway.engine.reference_runner import ReferenceRunner
from cutaway.formats.gguf import open_gguf
from cutaway.model.batch import Piece, make_batch
from cutaway.ops.cpu.arrays import Floats

FIXTURES = Path(__file__).parent.parent / "fixtures"
PROMPTS = {each["name"]: each for each in json.loads((FIXTURES / "prompts.json").read_text("utf-8"))["prompts"]}
IDS = np.load(FIXTURES / "smollm2_reference.npz")


def ids_of(name: str, most: int = 24) -> list[int]:
    found: list[int] = IDS[f"{name}.ids"].tolist()[:most]
    return found


@pytest.fixture(scope="module")
def reference(smollm2_path: Path) -> Iterator[Any]:
    """ids → last hidden states [T, D] in float64, from the tap behind the last norm."""
    with open_gguf(smollm2_path) as source:
        runner = ReferenceRunner(source, context=24)

        def states(ids: list[int]) -> npt.NDArray[np.float64]:
            seen: dict[str, npt.NDArray[np.float64]] = {}

            def tap(name: str, layer: int, array: Any) -> None:
                if name == "output_norm":
                    seen[name] = np.array(array)

            runner.step(make_batch([Piece(0, ids, range(runner.num_pages), len(ids))]), tap)
            return seen["output_norm"]

        yield states


def unit(vector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return vector / np.linalg.norm(vector)


def one(llm: LLM, ids: list[int], pooling: Any) -> npt.NDArray[np.float64]:
    return np.array(llm.embed(ids, pooling=pooling)[0].outputs.embedding)


@pytest.mark.parametrize("name", ["english"])
def test_they_are_those_of_the_reference(llm: LLM, reference: Any, name: str) -> None:
    """Activations in 8 bits move a state by some per cent of its length (cosine above 0.99); another position's state,
    another pooling, or a state before the norm is much farther off, which the last lines measure.
    """
    ids = ids_of(name)
    states = reference(ids)
    last, mean = one(llm, ids, "last"), one(llm, ids, "mean")
    assert last @ unit(states[-1]) > 0.99
    assert mean @ unit(states.mean(0)) > 0.99
    assert np.linalg.norm(last) == pytest.approx(1, abs=1e-6)
    assert np.linalg.norm(mean) == pytest.approx(1, abs=1e-6)
    assert last @ unit(states[-2]) < 0.97
    assert mean @ unit(states[-1]) < 0.97


def test_the_last_state_is_what_the_forward_has_for_its_logits(llm: LLM) -> None:
    """To the bit: the open run's own array behind the last norm."""
    ids = ids_of("english")
    seen: list[Floats] = []

    def tap(name: str, layer: int, array: Any) -> None:
        if name == "output_norm":
            seen.append(array.copy())

    pages = range(-(-len(ids) // llm.runner.kv.page_length))
    batch = make_batch([Piece(0, ids, pages, 16)])
    llm.runner.step_open(batch, tap)
    llm.runner.step(batch)
    states = llm.runner.hidden_states(batch)
    np.testing.assert_array_equal(states[-16:], seen[0])
    pool = Pool("last")
    pool.add(0, states)
    assert llm.embed(ids)[0].outputs.embedding == pool.vector().tolist()


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_the_same_bits_however_it_is_computed(smollm2_path: Path, pooling: Any) -> None:
    """Chunks of 7 tokens and whole, other company, in a static batch, and without a cache."""
    prompts = [ids_of(name) for name in sorted(PROMPTS)[:3]]
    found = []
    for options in ({"max_num_batched_tokens": 7}, {"kv": "contiguous", "batching": "static"}, {"kv": "none"}):
        with LLM(smollm2_path, threads=1, max_model_len=64, **options) as llm:  # type: ignore[arg-type]
            found.append([each.outputs.embedding for each in llm.embed(prompts, pooling=pooling)])
            assert found[-1] == [llm.embed(ids, pooling=pooling)[0].outputs.embedding for ids in prompts]
    assert found[0] == found[1] == found[2]


def test_the_prefix_cache(llm: LLM) -> None:
    """The last state needs the last token computed and no other; the mean needs all of them. Both leave keys and
    values for others.
    """
    ids = llm.tokenizer.encode("A prompt that no other test has, long enough for a block or two of the cache. " * 3)
    first = llm.embed(ids)[0]
    again, mean = llm.embed(ids)[0], llm.embed(ids, pooling="mean")[0]
    assert (first.num_cached_tokens, mean.num_cached_tokens) == (0, 0)
    assert again.num_cached_tokens >= len(ids) - 16
    assert first.outputs == again.outputs
    assert llm.generate(ids, SamplingParams(max_tokens=1))[0].num_cached_tokens >= len(ids) - 16


def test_beside_answers(llm: LLM) -> None:
    """Embeddings and answers in the same steps: each as it would be alone."""
    params = SamplingParams(temperature=0, max_tokens=30)
    want = llm.generate("The sea is", params)[0].outputs[0].token_ids
    stream = llm.stream("The sea is", params)
    ids = next(stream).token_ids
    embedded = llm.embed(["One two three", "Four"], pooling="mean")
    assert ids + [token for delta in stream for token in delta.token_ids] == want
    assert [each.outputs for each in embedded] == [
        llm.embed(t, pooling="mean")[0].outputs for t in ("One two three", "Four")
    ]


def test_a_whole_context(llm: LLM) -> None:
    """No place is left for an answer, and none is needed."""
    ids = [7] * 1024
    output = llm.embed(ids)[0]
    assert (output.finished, len(output.prompt_token_ids), len(output.outputs.embedding)) == (True, 1024, 576)
    assert output.statistics.generated_tokens == 0
    with pytest.raises(CutawayError, match=r"the prompt has 1025 tokens; the context holds 1024\. Shorten"):
        llm.embed([7] * 1025)


def test_what_is_refused(llm: LLM) -> None:
    with pytest.raises(CutawayError, match="pooling is 'cls'; it must be one of last, mean") as refused:
        llm.embed("x", pooling="cls")  # type: ignore[arg-type]
    assert refused.value.field == "pooling"  # type: ignore[attr-defined]
    with pytest.raises(CutawayError, match="Use pooling: 'last' or 'mean'"):
        llm.embed("x", pooling_params=1)
    with pytest.raises(CutawayError, match=r"LLM.embed has no option 'poling'"):
        llm.embed("x", poling="mean")
    assert llm.embed("x", pooling_params=None, lora_request=None)[0].finished


def test_a_deadline(llm: LLM) -> None:
    with pytest.raises(CutawayError, match="ended before it was computed"):
        llm.embed([3] * 1000, timeout=1e-6)


def test_asyncio(llm: LLM) -> None:
    import asyncio

    async def main() -> list[float]:
        stream = await AsyncEngine(llm).submit_embedding("Hello", "mean")
        (delta,) = [each async for each in stream]
        assert (delta.text, delta.token_ids, delta.finish_reason) == ("", [], "stop")
        return stream.embedding().outputs.embedding

    assert asyncio.run(main()) == llm.embed("Hello", pooling="mean")[0].outputs.embedding


def test_pools_count_each_position_once() -> None:
    """Where a prompt was preempted, its first chunks come again; and the sums are those of float64, in order."""
    states = np.random.default_rng(5).standard_normal((11, 13)).astype(np.float32)
    whole, pieces, last = Pool("mean"), Pool("mean"), Pool("last")
    whole.add(0, states)
    for start, end in ((0, 4), (4, 5), (0, 3), (3, 9), (9, 11)):
        pieces.add(start, states[start:end])
        last.add(start, states[start:end])
    assert whole.vector().tolist() == pieces.vector().tolist()
    want = states.astype(np.float64).mean(0)
    np.testing.assert_allclose(whole.vector(), want / math.sqrt((want**2).sum()), rtol=1e-6)
    np.testing.assert_allclose(last.vector(), states[-1] / np.linalg.norm(states[-1]), rtol=1e-6)


@pytest.mark.parametrize("value", [0, math.nan, math.inf])
def test_a_state_without_a_direction(value: float) -> None:
    pool = Pool("last")
    pool.add(0, np.full((1, 4), value, np.float32))
    with pytest.raises(CutawayError, match="no direction"):
        pool.vector()
