"""The logprobs of a prompt's own tokens, from a real model."""

import json
from pathlib import Path

import numpy as np
import pytest

from cutaway import LLM, SamplingParams
from cutaway.ops.cpu.arrays import Batch, Floats

FIXTURES = Path(__file__).parent.parent / "fixtures"
REFERENCE = np.load(FIXTURES / "smollm2_reference.npz")
NAMES = [each["name"] for each in json.loads((FIXTURES / "prompts.json").read_text("utf-8"))["prompts"]]


@pytest.mark.parametrize("name", NAMES)
def test_they_are_those_of_the_reference(llm: LLM, name: str) -> None:
    """Within what activations in 8 bits cost. Their KL divergence from the reference is about 4e-3 (the model's tests),
    which is a spread of √(2 · 4e-3) = 0.09 nats for likely tokens, and more for unlikely ones; the logprobs of another
    position are nats away.
    """
    ids = REFERENCE[f"{name}.ids"].tolist()
    output = llm.generate(ids, SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=5))[0]
    assert output.prompt_logprobs is not None
    assert len(output.prompt_logprobs) == len(ids)
    assert output.prompt_logprobs[0] is None
    errors = []
    for position, entries in enumerate(output.prompt_logprobs[1:], 1):
        assert entries is not None
        assert ids[position] in entries
        theirs = dict(
            zip(
                REFERENCE[f"{name}.candidates"][position - 1].tolist(),
                REFERENCE[f"{name}.logprobs"][position - 1].tolist(),
                strict=True,
            )
        )
        for token, entry in entries.items():
            assert entry.decoded_token == llm.tokenizer.decode([token], skip_special=False)
            if token in theirs:
                errors.append(entry.logprob - theirs[token])
    if len(ids) > 1:
        assert len(errors) >= 5 * (len(ids) - 1) * 0.9
        assert np.abs(errors).mean() < 0.25
        assert np.median(np.abs(errors)) < 0.15


def test_they_are_what_generation_reports_for_the_same_tokens(llm: LLM) -> None:
    """A token generated after a prompt, and the same token as a part of the prompt: the same bits."""
    ids = llm.tokenizer.encode("The sea is")
    answer = llm.generate(ids, SamplingParams(temperature=0, max_tokens=40, logprobs=3, ignore_eos=True))[0].outputs[0]
    again = llm.generate(ids + answer.token_ids, SamplingParams(max_tokens=1, prompt_logprobs=3))[0]
    assert again.prompt_logprobs is not None
    assert again.prompt_logprobs[len(ids) :] == answer.logprobs


def test_no_more_rows_of_logits_than_a_block_has(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    step = llm.runner.step

    def counted(batch: Batch) -> Floats:
        rows.append(len(batch.output_rows))
        return step(batch)

    monkeypatch.setattr(llm.runner, "step", counted)
    ids = REFERENCE["long.ids"].tolist()[:200]
    llm.generate(ids, SamplingParams(max_tokens=1, prompt_logprobs=0))
    assert max(rows) <= llm.runner.max_step_outputs == len(llm.runner.workspace.logits)
    assert sum(rows) == len(ids) - 1 + 1


def test_a_cached_prompt_is_scored_all_the_same(llm: LLM) -> None:
    ids = llm.tokenizer.encode("One, two, three, four, five")
    params = SamplingParams(temperature=0, max_tokens=2, prompt_logprobs=1)
    first, second = llm.generate([ids, ids], params)
    assert first.prompt_logprobs == second.prompt_logprobs
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 0)
    assert llm.generate(ids, SamplingParams(max_tokens=1))[0].prompt_logprobs is None


def test_one_token(llm: LLM) -> None:
    output = llm.generate([504], SamplingParams(max_tokens=1, prompt_logprobs=2))[0]
    assert output.prompt_logprobs == [None]
