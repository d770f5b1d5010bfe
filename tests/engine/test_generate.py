"""Generation over a runner without a model: where it ends, what it asks, what it refuses, what its noise is."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from prefix_runner import PrefixRunner

from cutaway.engine.generate import GeneratedToken, check_prompt, generate_tokens, score_prompt
from cutaway.errors import CapacityError, ComputationError, InvalidRequestError
from cutaway.memory.kv_setting import KV_SETTINGS, kv_setting
from cutaway.memory.sequence_cache import SequenceCache
from cutaway.ops.cpu.threads import float_environment
from cutaway.sampling.forbidden import NO_BAD_WORDS
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, sample_row
from support.machines import CONTROL_BITS, FLUSH_TO_ZERO

PROMPT = [7, 0, 49, 7, 12]


def generation(
    runner: PrefixRunner,
    prompt: list[int] = PROMPT,
    seed: int = 1,
    stop_ids: frozenset[int] = frozenset(),
    choice: int = 0,
    cache: SequenceCache | None = None,
    **params: Any,
) -> Iterator[GeneratedToken]:
    scratch = SamplerScratch.allocate(runner.vocab_size)
    kept = cache or SequenceCache(kv_setting("paged"), runner.context)
    return generate_tokens(
        runner, kept, prompt, SamplingParams(**params), seed, choice, stop_ids, NO_BAD_WORDS, scratch
    )


def generate(runner: PrefixRunner, prompt: list[int] = PROMPT, **options: Any) -> list[GeneratedToken]:
    return list(generation(runner, prompt, **options))


def ids_of(tokens: list[GeneratedToken]) -> list[int]:
    return [token.token_id for token in tokens]


def greedy(runner: PrefixRunner, prompt: list[int], count: int) -> list[int]:
    """The right answer at temperature 0, token by token over the whole prefix."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(runner.logits_after(ids).argmax()))
    return ids[len(prompt) :]


def test_each_token_is_fed_back() -> None:
    runner = PrefixRunner()
    tokens = generate(runner, temperature=0, max_tokens=10)
    assert ids_of(tokens) == greedy(runner, PROMPT, 10)
    assert [token.finish_reason for token in tokens] == [None] * 9 + ["length"]


def test_the_last_token_is_not_computed_further() -> None:
    runner = PrefixRunner()
    generate(runner, temperature=0, max_tokens=3)
    assert runner.batches == [5, 1, 1]


def test_a_stop_id_ends_and_is_given_last() -> None:
    runner = PrefixRunner()
    answer = greedy(runner, PROMPT, 10)
    stop = answer[6]
    assert stop not in answer[:6]
    tokens = generate(runner, stop_ids=frozenset({stop, 10_000}), temperature=0, max_tokens=10)
    assert ids_of(tokens) == answer[:7]
    assert [token.finish_reason for token in tokens] == [None] * 6 + ["stop"]


def test_a_stop_id_at_the_last_place_is_a_stop() -> None:
    runner = PrefixRunner()
    answer = greedy(runner, PROMPT, 7)
    assert generate(runner, stop_ids=frozenset({answer[6]}), temperature=0, max_tokens=7)[-1].finish_reason == "stop"


@pytest.mark.parametrize("max_tokens", [None, 35, 36, 10**9])
@pytest.mark.parametrize("length", [1, 5, 39])
def test_the_context_ends_it_when_it_is_full(length: int, max_tokens: int | None) -> None:
    runner = PrefixRunner(context=40)
    tokens = generate(runner, PROMPT * 8 if length == 40 else (PROMPT * 8)[:length], max_tokens=max_tokens)
    expected = 40 - length if max_tokens is None else min(40 - length, max_tokens)
    assert len(tokens) == expected
    assert tokens[-1].finish_reason == "length"


@pytest.mark.parametrize("max_step_tokens", [1, 2, 7, 29, 30, 31, 64])
def test_the_prompt_s_chunks_change_nothing(max_step_tokens: int) -> None:
    prompt = list(range(30))
    runner = PrefixRunner(max_step_tokens=max_step_tokens)
    tokens = generate(runner, prompt, max_tokens=5)
    assert ids_of(tokens) == ids_of(generate(PrefixRunner(), prompt, max_tokens=5))
    chunks = runner.batches[: -(-30 // max_step_tokens)]
    assert sum(chunks) == 30
    assert set(chunks[:-1]) <= {max_step_tokens}


def test_the_noise_is_of_seed_choice_0_and_position() -> None:
    runner = PrefixRunner()
    params = SamplingParams(temperature=0.9, max_tokens=12)
    expected = list(PROMPT)
    scratch = SamplerScratch.allocate(runner.vocab_size)
    with float_environment():
        for position in range(5, 17):
            row = runner.logits_after(expected)
            expected.append(sample_row(row, params, NoiseKey(-7, 0, position), scratch).token_id)
    assert ids_of(generate(runner, seed=-7, temperature=0.9, max_tokens=12)) == expected[5:]


def test_seeds() -> None:
    answers = [tuple(ids_of(generate(PrefixRunner(), seed=seed, max_tokens=12))) for seed in (5, 5, 6, -5, 2**63 - 1)]
    assert answers[0] == answers[1]
    assert len(set(answers)) == 4


def test_the_rank_is_in_the_model_s_own_distribution() -> None:
    runner = PrefixRunner()
    tokens = generate(runner, temperature=5, logprobs=0, max_tokens=12)
    prefix = list(PROMPT)
    ranks = []
    for token in tokens:
        ranks.append(1 + [int(i) for i in np.argsort(-runner.logits_after(prefix))].index(token.token_id))
        prefix.append(token.token_id)
    assert [token.sample.rank for token in tokens] == ranks
    assert max(ranks) > 1
    assert generate(runner, max_tokens=1)[0].sample.rank is None


@pytest.mark.parametrize("damaged", [4, 6])
def test_logits_that_are_no_numbers(damaged: int) -> None:
    runner = PrefixRunner()
    runner.damaged = damaged
    with pytest.raises(ComputationError, match=rf"logit of id 3 \(of 50\) at position {damaged + 1} is NaN"):
        generate(runner, temperature=0, max_tokens=10)
    runner.damaged = None
    assert ids_of(generate(runner, temperature=0, max_tokens=10)) == greedy(runner, PROMPT, 10)


def test_the_caller_s_floating_point_state_is_left_alone() -> None:
    """A suspended generation must not leave its own rounding and denormals to the caller."""
    tokens = generation(PrefixRunner())
    from cutaway.ops.cpu.threads import _set_float_environment

    before = _set_float_environment(FLUSH_TO_ZERO)
    try:
        next(tokens)
        assert _set_float_environment(FLUSH_TO_ZERO) & CONTROL_BITS == FLUSH_TO_ZERO & CONTROL_BITS
    finally:
        _set_float_environment(before)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], r"the prompt is empty; it must have at least 1 token"),
        ([1, 50], r"prompt token 1 is 50; it must be an integer from 0 to 49"),
        ([2**63], r"prompt token 0 is 9223372036854775808; it must be an integer from 0 to 49"),
        ([1, 2, -1], r"prompt token 2 is -1; it must be an integer from 0 to 49"),
        ([True], r"prompt token 0 is True; "),
        ([1, 2.0], r"prompt token 1 is 2\.0; "),
        ([float("nan")], r"prompt token 0 is nan; "),
        (["7"], r"prompt token 0 is '7'; "),
        ([None], r"prompt token 0 is None; "),
    ],
)
def test_prompts_that_can_t_be_computed(prompt: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        check_prompt(prompt, 40, 50)
    assert caught.value.field == "prompt"


@pytest.mark.parametrize("length", [40, 41, 5000])
def test_a_prompt_that_leaves_no_room(length: int) -> None:
    with pytest.raises(CapacityError, match=rf"the prompt has {length} tokens; the context holds 40, and one"):
        check_prompt([1] * length, 40, 50)
    check_prompt([1] * 39, 40, 50)


# -- the cache


@pytest.mark.parametrize("name", sorted(KV_SETTINGS))
@pytest.mark.parametrize("max_step_tokens", [3, 64])
def test_the_kv_setting_changes_the_work_and_not_the_tokens(name: str, max_step_tokens: int) -> None:
    runner = PrefixRunner(max_step_tokens=max_step_tokens)
    cache = SequenceCache(kv_setting(name), runner.context)
    tokens = generate(runner, cache=cache, temperature=0.8, max_tokens=6)
    assert ids_of(tokens) == ids_of(generate(PrefixRunner(), temperature=0.8, max_tokens=6))
    assert sum(runner.batches) == (5 + 6 + 7 + 8 + 9 + 10 if name == "none" else 5 + 5)


def test_a_second_request_computes_what_is_new() -> None:
    runner = PrefixRunner()
    cache = SequenceCache(kv_setting("paged"), runner.context)
    answer = ids_of(generate(runner, cache=cache, temperature=0, max_tokens=4))
    runner.batches.clear()
    generate(runner, PROMPT + answer + [9, 9], cache=cache, temperature=0, max_tokens=1)
    assert runner.batches == [1 + 2]  # the last token of the answer was drawn and never computed


@pytest.mark.parametrize("tail", [0, 1, 2])
@pytest.mark.parametrize("shared", range(6))
def test_prompts_shorter_equal_and_diverging(shared: int, tail: int) -> None:
    """After a long request, another whose prompt shares a beginning; then the first again, with its own seeds."""
    if shared + tail == 0:
        return
    runner = PrefixRunner()
    cache = SequenceCache(kv_setting("paged"), runner.context)
    first = [ids_of(generate(runner, cache=cache, seed=seed, max_tokens=8)) for seed in (1, 2)]
    other = PROMPT[:shared] + [33, 34][:tail]
    found = ids_of(generate(runner, other, cache=cache, seed=3, max_tokens=8))
    assert found == ids_of(generate(PrefixRunner(), other, seed=3, max_tokens=8))
    assert [ids_of(generate(runner, cache=cache, seed=seed, max_tokens=8)) for seed in (1, 2)] == first
    assert first[0] != first[1]


def test_two_generations_may_take_turns() -> None:
    runner = PrefixRunner()
    cache = SequenceCache(kv_setting("paged"), runner.context)
    pair = [generation(runner, prompt, cache=cache, max_tokens=9) for prompt in (PROMPT, [7, 0, 1])]
    found: list[list[int]] = [[], []]
    for which in (0, 1, 1, 0, 1, 0, 0, 0, 1, 0, 1, 1, 0, 1, 0, 1, 1, 0):
        found[which].append(next(pair[which]).token_id)
    for prompt, ids in zip((PROMPT, [7, 0, 1]), found, strict=True):
        assert ids == ids_of(generate(PrefixRunner(), prompt, max_tokens=9))


def test_a_step_that_fails_leaves_nothing_wrong_behind() -> None:
    runner = PrefixRunner(max_step_tokens=2)
    cache = SequenceCache(kv_setting("paged"), runner.context)
    generate(runner, [1, 2, 3, 4, 5, 6, 7], cache=cache, max_tokens=3)
    step = runner.step
    for fails_at in range(1, 5):
        calls = 0

        def breaks(batch: Any, fails_at: int = fails_at) -> Any:
            nonlocal calls
            calls += 1
            logits = step(batch)  # written already
            if calls == fails_at:
                raise KeyboardInterrupt
            return logits

        runner.step = breaks  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            generate(runner, [1, 2, 9, 9, 9, 9, 9, 9], cache=cache, max_tokens=2)
        runner.step = step  # type: ignore[method-assign]
        found = ids_of(generate(runner, [1, 2, 3, 4, 5, 6, 7], cache=cache, max_tokens=3))
        assert found == ids_of(generate(PrefixRunner(), [1, 2, 3, 4, 5, 6, 7], max_tokens=3)), fails_at


# -- choices, prompts


def test_choices_have_noise_of_their_own() -> None:
    choices = [ids_of(generate(PrefixRunner(), choice=choice, max_tokens=12)) for choice in range(3)]
    assert len({tuple(each) for each in choices}) == 3


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 64])
def test_the_prompt_is_scored_in_blocks(rows: int) -> None:
    runner = PrefixRunner(max_step_outputs=rows)
    cache = SequenceCache(kv_setting("paged"), runner.context)
    cache.reserve(3)
    cache.append(np.array(PROMPT[:3], np.int32))  # it is not used
    scratch = SamplerScratch.allocate(runner.vocab_size)
    scores = list(score_prompt(runner, cache, PROMPT, 2, scratch))
    assert [score.token_id for score in scores] == PROMPT[1:]
    for end, score in enumerate(scores, 1):
        logits = runner.logits_after(PROMPT[:end]).astype(np.float64)
        logprobs = logits - np.log(np.exp(logits).sum())
        assert score.logprob == pytest.approx(logprobs[PROMPT[end]], abs=1e-5)
        assert score.rank == 1 + int((logits > logits[PROMPT[end]]).sum())
        assert [token for token, _ in score.top_logprobs] == np.argsort(-logits)[:2].tolist()
    assert max(runner.batches) <= rows
    assert list(score_prompt(runner, cache, [5], 0, scratch)) == []
