"""The engine's core over a runner without a model: where a request ends, what its noise is, what it costs, and what
happens when something fails. That neighbours change nothing is in ``test_core_neighbours``.
"""

import gc
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from core_rig import PROMPT, Answer, Rig, answer_alone, asked
from prefix_runner import PrefixRunner

from cutaway.engine import results
from cutaway.engine.outputs import CompletionOutput
from cutaway.engine.prompts import check_prompt
from cutaway.errors import CapacityError, ComputationError, CutawayError, InvalidRequestError, QueueFullError
from cutaway.ops.cpu.arrays import Batch, Floats
from cutaway.ops.cpu.threads import float_environment
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, sample_row
from cutaway.scheduler.continuous import ContinuousPolicy
from cutaway.scheduler.policy import Policy
from cutaway.scheduler.static import StaticPolicy
from cutaway.scheduler.step import Step
from support.machines import CONTROL_BITS, FLUSH_TO_ZERO


def generate(runner: PrefixRunner, prompt: list[int] = PROMPT, **params: Any) -> CompletionOutput:
    """The answer of a request that has the engine for itself."""
    rig = Rig(runner)
    answer = rig.ask(prompt, **params)
    rig.run()
    assert answer.error is None
    (choice,) = answer.choices()
    return choice


def greedy(runner: PrefixRunner, prompt: list[int], count: int) -> list[int]:
    """The right answer at temperature 0, token by token over the whole prefix."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(runner.logits_after(ids).argmax()))
    return ids[len(prompt) :]


def test_each_token_is_fed_back() -> None:
    rig = Rig(PrefixRunner())
    answer = rig.ask(temperature=0, max_tokens=10)
    rig.run()
    assert answer.ids == greedy(rig.runner, PROMPT, 10)
    assert [delta.finish_reason for delta in answer.deltas] == [None] * 9 + ["length"]
    assert answer.output().finished


def test_the_last_token_is_not_computed_further() -> None:
    runner = PrefixRunner()
    generate(runner, temperature=0, max_tokens=3)
    assert runner.batches == [5, 1, 1]


def test_a_stop_id_ends_and_is_given_last() -> None:
    runner = PrefixRunner()
    answer = greedy(runner, PROMPT, 10)
    stop = answer[6]
    assert stop not in answer[:6]
    found = generate(runner, stop_ids={stop, 10_000}, temperature=0, max_tokens=10)
    assert (found.token_ids, found.finish_reason, found.stop_reason) == (answer[:7], "stop", None)


def test_a_stop_id_at_the_last_place_is_a_stop() -> None:
    runner = PrefixRunner()
    answer = greedy(runner, PROMPT, 7)
    assert generate(runner, stop_ids={answer[6]}, temperature=0, max_tokens=7).finish_reason == "stop"


@pytest.mark.parametrize("max_tokens", [None, 35, 36, 10**9])
@pytest.mark.parametrize("length", [1, 5, 39])
def test_the_context_ends_it_when_it_is_full(length: int, max_tokens: int | None) -> None:
    found = generate(PrefixRunner(context=40), (PROMPT * 8)[:length], max_tokens=max_tokens)
    assert len(found.token_ids) == (40 - length if max_tokens is None else min(40 - length, max_tokens))
    assert found.finish_reason == "length"


@pytest.mark.parametrize("max_step_tokens", [4, 7, 29, 30, 31, 64])
def test_the_prompt_s_chunks_change_nothing(max_step_tokens: int) -> None:
    prompt = list(range(30))
    runner = PrefixRunner(max_step_tokens=max_step_tokens)
    assert generate(runner, prompt, max_tokens=5) == generate(PrefixRunner(), prompt, max_tokens=5)
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
    assert generate(runner, seed=-7, temperature=0.9, max_tokens=12).token_ids == expected[5:]


def test_seeds() -> None:
    answers = [tuple(generate(PrefixRunner(), seed=seed, max_tokens=12).token_ids) for seed in (5, 5, 6, -5, 2**63 - 1)]
    assert answers[0] == answers[1]
    assert len(set(answers)) == 4


def test_the_rank_is_in_the_model_s_own_distribution() -> None:
    runner = PrefixRunner()
    found = generate(runner, temperature=5, logprobs=0, max_tokens=12)
    prefix, ranks = list(PROMPT), []
    for token in found.token_ids:
        ranks.append(1 + [int(i) for i in np.argsort(-runner.logits_after(prefix))].index(token))
        prefix.append(token)
    assert found.logprobs is not None
    assert [each[token].rank for token, each in zip(found.token_ids, found.logprobs, strict=True)] == ranks
    assert max(ranks) > 1
    assert generate(runner, max_tokens=1).logprobs is None


def test_the_caller_s_floating_point_state_is_left_alone() -> None:
    from cutaway.ops.cpu.threads import _set_float_environment

    rig = Rig(PrefixRunner())
    rig.ask(max_tokens=2)
    before = _set_float_environment(FLUSH_TO_ZERO)
    try:
        rig.core.step()
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


# -- keys and values


@pytest.mark.parametrize("keeps_kv", [True, False])
@pytest.mark.parametrize("max_step_tokens", [4, 64])
def test_without_a_cache_every_token_costs_the_whole_sequence(keeps_kv: bool, max_step_tokens: int) -> None:
    rig = Rig(PrefixRunner(max_step_tokens=max_step_tokens), keeps_kv=keeps_kv, prefix_cache=keeps_kv)
    answer = rig.ask(temperature=0.8, max_tokens=6)
    rig.run()
    assert answer.ids == generate(PrefixRunner(), temperature=0.8, max_tokens=6).token_ids
    assert sum(rig.runner.batches) == (5 + 5 if keeps_kv else 5 + 6 + 7 + 8 + 9 + 10)
    statistics = answer.output().statistics
    assert (statistics.kv_reserved_bytes, statistics.kv_used_bytes) == ((12, 10) if keeps_kv else (0, 0))


def test_a_second_request_computes_what_is_new() -> None:
    """Blocks of 4: 9 ids are computed, in two full blocks and a third."""
    rig = Rig(PrefixRunner())
    first = rig.ask(temperature=0, max_tokens=5)
    rig.run()
    rig.runner.batches.clear()
    second = rig.ask([*PROMPT, *first.ids, 9, 9], temperature=0, max_tokens=1)
    rig.run()
    assert rig.runner.batches == [12 - 9]
    assert second.output().num_cached_tokens == 9


@pytest.mark.parametrize("tail", [0, 1, 2])
@pytest.mark.parametrize("shared", range(6))
def test_prompts_shorter_equal_and_diverging(shared: int, tail: int) -> None:
    """After a long request, another whose prompt shares a beginning; then the first again, with its own seeds."""
    if shared + tail == 0:
        return
    rig = Rig(PrefixRunner(page_length=2))

    def ask(prompt: list[int], seed: int) -> list[int]:
        answer = rig.ask(prompt, seed=seed, max_tokens=8)
        rig.run()
        return answer.ids

    first = [ask(PROMPT, seed) for seed in (1, 2)]
    other = PROMPT[:shared] + [33, 34][:tail]
    assert ask(other, 3) == generate(PrefixRunner(), other, seed=3, max_tokens=8).token_ids
    assert [ask(PROMPT, seed) for seed in (1, 2)] == first
    assert first[0] != first[1]


# -- choices, prompts


@pytest.mark.parametrize("n", [2, 4, 5, 16])
def test_choices_are_those_of_runs_alone(n: int) -> None:
    """Up to four times as many as run together; the prompt is computed once for four, and blocks are copied."""
    rig = Rig(PrefixRunner())
    answer = rig.ask(n=n, max_tokens=6, logprobs=0)
    rig.run()
    choices = answer.choices()
    assert [each.index for each in choices] == list(range(n))
    for each in choices:
        want = answer_alone(rig.runner, answer.generation.asked, each.index)
        assert each.token_ids == [sample.token_id for sample in want]
        assert each.logprobs is not None
        assert [entry[sample.token_id].logprob for entry, sample in zip(each.logprobs, want, strict=True)] == [
            sample.logprob for sample in want
        ]
        assert each.text == "".join(delta.text for delta in answer.deltas if delta.index == each.index)
        assert each.finish_reason == "length"
    assert len({tuple(each.token_ids) for each in choices}) == n
    assert rig.runner.batches[0] == 5
    assert rig.runner.copies


def test_pages_are_copied_in_the_order_of_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later copy may overwrite what an earlier one reads."""
    rig = Rig(PrefixRunner(), max_sequences=4)
    schedule, planned = rig.core.scheduler.schedule, list[tuple[int, int]]()

    def recorded(now: float, refill: Callable[[], object], *, opens: bool) -> Step:
        step = schedule(now, refill, opens=opens)
        planned.extend((copy.source, copy.target) for copy in step.copies)
        return step

    monkeypatch.setattr(rig.core.scheduler, "schedule", recorded)
    rig.ask(n=4, max_tokens=4)
    rig.run()
    assert rig.runner.copies == planned
    assert len(set(planned)) == 3


def test_more_choices_than_may_wait_take_their_turns() -> None:
    """An empty queue takes any request; whoever comes next finds it full until all but a few of its choices run."""
    rig = Rig(PrefixRunner(), max_sequences=2, limits={"max_waiting": 3})
    many = rig.ask(n=9, max_tokens=3)
    for _ in range(3):
        with pytest.raises(QueueFullError):
            rig.ask([1, 2], n=9, max_tokens=3)
    assert rig.core.scheduler.num_waiting == 9
    while rig.core.scheduler.num_waiting > 2:
        rig.core.step()
    other = rig.ask([1, 2], max_tokens=3)
    rig.run()
    assert len(many.choices()) == 9
    assert many.output().finished
    assert other.output().finished


@pytest.mark.parametrize("policy", [ContinuousPolicy(), StaticPolicy(), StaticPolicy(bucketed=True)])
@pytest.mark.parametrize("n", [2, 7])
def test_newcomers_overtake_no_choice(policy: Policy, n: int) -> None:
    """The queue is filled again before each step, and yet all choices end within the bound."""
    rig = Rig(PrefixRunner(), policy=policy, max_sequences=1, limits={"max_waiting": n + 1})
    many = rig.ask([1], n=n, max_tokens=2)
    bound, newcomers = rig.core.scheduler.limits.longest_wait(3, 0, n), 0
    for _ in range(bound):
        while rig.core.scheduler.num_waiting <= n:
            rig.ask([2 + newcomers % 9], max_tokens=2)
            newcomers += 1
        rig.core.step()
        if many.generation.ended:
            break
    assert [each.finish_reason for each in many.choices()] == ["length"] * n
    assert newcomers > 1


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 64])
@pytest.mark.parametrize("neighbours", [0, 3])
def test_the_prompt_is_scored_in_blocks(rows: int, neighbours: int) -> None:
    runner = PrefixRunner(max_step_outputs=rows)
    rig = Rig(runner, max_sequences=4 if neighbours else 1)
    for number in range(neighbours):
        rig.ask([number + 1], max_tokens=20)
    for _ in range(2):  # once with nothing in the cache, once with all
        before = len(runner.batches)
        answer = rig.ask(prompt_logprobs=2, n=2 if neighbours else 1, max_tokens=2)
        while not answer.generation.ended:
            rig.core.step()
        output = answer.output()
        assert output.prompt_logprobs is not None
        assert output.prompt_logprobs[0] is None
        assert output.num_cached_tokens == 0
        for end, entries in enumerate(output.prompt_logprobs[1:], 1):
            assert entries is not None
            logits = runner.logits_after(PROMPT[:end]).astype(np.float64)
            logprobs = logits - np.log(np.exp(logits).sum())
            assert set(entries) == {PROMPT[end], *np.argsort(-logits)[:2].tolist()}
            for token, entry in entries.items():
                assert entry.logprob == pytest.approx(logprobs[token], abs=1e-5)
                assert entry.rank == 1 + int((logits > logits[token]).sum())
        if not neighbours:
            assert max(runner.batches[before:]) <= rows
    rig.run()


def test_one_token_is_scored_by_nothing() -> None:
    rig = Rig(PrefixRunner())
    answer = rig.ask([5], prompt_logprobs=2, max_tokens=1)
    rig.run()
    assert answer.output().prompt_logprobs == [None]


# -- what goes wrong


def test_logits_that_are_no_numbers_end_one_request() -> None:
    """Its neighbours go on; with it in the batch its own other choice ends, too."""
    rig = Rig(PrefixRunner(), max_sequences=4)
    rig.runner.damaged = tuple(PROMPT + greedy(rig.runner, PROMPT, 2))
    damaged = rig.ask(temperature=0, n=2, max_tokens=10)
    neighbour = rig.ask([1, 2], max_tokens=10)
    rig.run()
    assert isinstance(damaged.error, ComputationError)
    assert "logit of id 3 (of 50) at position 7 is NaN" in str(damaged.error)
    assert [each.token_ids for each in damaged.choices()] == [greedy(rig.runner, PROMPT, 2)] * 2
    assert neighbour.ids == generate(PrefixRunner(), [1, 2], max_tokens=10).token_ids
    rig.runner.damaged = None
    again = rig.ask(temperature=0, max_tokens=10)
    rig.run()
    assert again.ids == greedy(rig.runner, PROMPT, 10)


class BrokenError(Exception):
    """What a broken runner raises."""


@pytest.mark.parametrize("fails_at", range(1, 12))
@pytest.mark.parametrize("what", ["step", "copy_page", "plan", "sample", "intruded", "count"])
def test_a_step_that_fails_counts_for_nothing(monkeypatch: pytest.MonkeyPatch, what: str, fails_at: int) -> None:
    """Written or copied already, then an error: the step is tried again, and nobody notices."""
    runner = PrefixRunner(max_step_tokens=4, page_length=2)
    rig = Rig(runner, num_blocks=24)
    owner, name = {
        "plan": (rig.core.scheduler.policy, "plan"),
        "sample": (results, "sample_rows"),
        "intruded": (results, "sample_rows"),
        "count": (rig.core.scheduler, "kv_positions"),
    }.get(what, (runner, what))
    right, calls = getattr(owner, name), 0

    def breaks(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        result = right(*arguments)
        if calls == fails_at and what == "intruded":  # amid the sampling, and what was sampled is wrong
            runner.num_steps += 1
            return [result[0]] * len(result)
        if calls == fails_at:
            raise BrokenError
        return result

    monkeypatch.setattr(owner, name, breaks)
    answers = [
        rig.ask(PROMPT[:length], seed=length, n=n, max_tokens=7, prompt_logprobs=1 if n == 2 else None)
        for length, n in ((5, 1), (3, 3), (5, 2))
    ]
    embedding = rig.ask(PROMPT, pooling="mean")
    failures = 0
    while rig.core.has_work:
        try:
            rig.core.step()
        except BrokenError:
            failures += 1
        rig.core.check()
    rig.run()
    assert failures == (calls >= fails_at and what != "intruded")
    assert failures or what in ("copy_page", "intruded")
    assert embedding.output().finished
    for answer in answers:
        for each in answer.choices():
            want = answer_alone(runner, answer.generation.asked, each.index)
            assert each.token_ids == [sample.token_id for sample in want]


@pytest.mark.parametrize("recovers", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_a_sink_that_raises_loses_its_request_alone(n: int, recovers: bool) -> None:
    rig = Rig(PrefixRunner())
    lost, other = rig.ask(max_tokens=5, n=n), rig.ask([1, 2], max_tokens=5)
    told: list[object] = []

    def sink(arrival: object) -> None:
        if not recovers or isinstance(arrival, list):
            raise BrokenError
        told.append(arrival)

    lost.generation.sink = sink
    rig.run()
    assert [type(each) for each in told] == [BrokenError] * recovers
    assert other.ids == generate(PrefixRunner(), [1, 2], max_tokens=5).token_ids
    for kept in (lost := rig.ask(max_tokens=5), other := rig.ask([1, 2], max_tokens=5)):
        assert not kept.generation.ended
    lost.generation.sink = sink
    rig.core.fail(CutawayError("the end"))
    assert str(other.error) == "the end"
    rig.run()


@pytest.mark.parametrize("where", ["complete", "cancel", "abort"])
def test_what_can_t_be_undone_breaks_the_engine(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """All are told, nothing is left to do, and nobody is let in."""
    rig = Rig(PrefixRunner(), max_sequences=2)
    answers = [rig.ask([number + 1], n=3, max_tokens=9) for number in range(4)]
    rig.core.step()

    def breaks(*arguments: object) -> None:
        raise BrokenError

    monkeypatch.setattr(rig.core.scheduler, where, breaks)
    if where == "cancel":
        monkeypatch.setattr(rig.runner, "step", breaks)
    if where == "abort":
        rig.core.fail(CutawayError("the end"))
    else:
        with pytest.raises(BrokenError):
            rig.core.step()
    assert all(isinstance(answer.error, CutawayError) for answer in answers)
    assert not rig.core.has_work
    rig.core.fail(CutawayError("the end"))
    with pytest.raises(CutawayError, match="has lost track of its memory"):
        rig.ask()


def test_an_idle_engine_holds_no_sequence() -> None:
    rig = Rig(PrefixRunner())
    rig.ask(max_tokens=4)
    rig.core.step()
    rig.core.step()
    held = [weakref.ref(sequence) for sequence in rig.core.scheduler.sequences()]
    rig.run()
    gc.collect()
    assert [each() for each in held] == [None]


def test_a_failure_that_reaches_everybody() -> None:
    rig = Rig(PrefixRunner(), max_sequences=2)
    answers = [rig.ask([number + 1], n=3, max_tokens=9) for number in range(4)]
    for _ in range(3):
        rig.core.step()
    rig.core.fail(CutawayError("the end"))
    assert [str(answer.error) for answer in answers] == ["the end"] * 4
    assert not rig.core.has_work
    rig.run()
    assert answers[0].choices()[0].token_ids  # what came before is kept


def test_a_failure_is_no_end_to_whom_is_handed_all_at_the_end() -> None:
    """Who takes the first arrival for the whole answer must not take a part for it."""
    rig = Rig(PrefixRunner(), max_sequences=2)
    answers = [Answer(asked([number + 1], 1, (), 100, n=2, max_tokens=9), f"whole {number}") for number in range(4)]
    for answer in answers:
        answer.generation.whole = True
        rig.core.submit(answer.generation)
    for _ in range(3):
        rig.core.step()
    assert answers[0].generation.begun is not None
    rig.core.fail(CutawayError("the end"))
    assert [[str(each) for each in answer.arrivals] for answer in answers] == [["the end"]] * 4
    rig.run()


def test_an_accounting_error_lets_nobody_in() -> None:
    rig = Rig(PrefixRunner())
    rig.blocks.pool.allocate()
    rig.core.rest()
    with pytest.raises(CutawayError, match=r"has lost track of its memory: .*Load the model again"):
        rig.ask()


@pytest.mark.parametrize("policy", [ContinuousPolicy(), StaticPolicy()])
@pytest.mark.parametrize("amid", [False, True])
def test_steps_of_others_on_the_same_runner_are_noticed(
    monkeypatch: pytest.MonkeyPatch, policy: Policy, amid: bool
) -> None:
    """They write to any page, between two steps of the engine or amid one; what was there is computed again."""
    rig = Rig(PrefixRunner(page_length=2), policy=policy)
    step = rig.runner.step

    def intrude() -> None:
        rig.runner.num_steps += 1
        for page in rig.runner.pages.values():
            page.update(dict.fromkeys(page, 13))

    def intruded(batch: Batch) -> Floats:
        logits = step(batch)
        if rig.runner.num_steps == 4:
            intrude()
            logits[:] = 0
        return logits

    if amid:
        monkeypatch.setattr(rig.runner, "step", intruded)
    answers = [rig.ask(prompt, seed=number, max_tokens=9) for number, prompt in enumerate((PROMPT, PROMPT[:3], [8]))]
    for number in range(50):
        if not amid and number == 3:
            intrude()
        rig.core.step()
        rig.core.check()
    assert rig.runner.num_steps >= 10
    rig.run()
    intrude()
    answers.append(rig.ask(PROMPT, seed=0, max_tokens=9))
    rig.run()
    assert answers[-1].generation.num_cached_tokens == 0, "something of the first was taken from the cache"
    for answer in answers:
        assert answer.ids == [sample.token_id for sample in answer_alone(rig.runner, answer.generation.asked)]


# -- the end from outside


def test_an_abort_in_any_state_frees_everything() -> None:
    """Queued, within its prompt, decoding, in the step before its last; also twice, and after its end."""
    for steps in range(12):
        rig = Rig(PrefixRunner(max_step_tokens=3), max_sequences=2)
        other = rig.ask([1, 2, 3, 4], max_tokens=8)
        answer = rig.ask(n=3, max_tokens=4)
        for _ in range(steps):
            rig.core.step()
        ended = answer.generation.ended
        rig.core.abort(answer.generation)
        rig.core.abort(answer.generation)
        choices = answer.choices()
        assert len(choices) == 3
        reasons = {each.finish_reason for each in choices}
        assert reasons == ({"length"} if ended else {"abort", "length"} if "length" in reasons else {"abort"})
        rig.run()
        assert other.ids == generate(PrefixRunner(), [1, 2, 3, 4], max_tokens=8).token_ids
    rig.core.abort(Answer(asked(PROMPT, 1, (), 40), "9").generation)  # never submitted


def test_deadlines() -> None:
    rig = Rig(PrefixRunner(), max_sequences=1)
    running = rig.ask([1], deadline=5.0, max_tokens=30)
    waiting = rig.ask([2], deadline=6.0, n=3, max_tokens=30)
    free = rig.ask([3], max_tokens=3)
    for _ in range(4):
        rig.core.step()
    rig.clock.now = 7.0
    rig.run()
    assert [each.finish_reason for each in running.choices()] == ["deadline"]
    assert running.ids == generate(PrefixRunner(), [1], max_tokens=4).token_ids
    assert [(each.token_ids, each.finish_reason) for each in waiting.choices()] == [([], "deadline")] * 3
    assert free.choices()[0].finish_reason == "length"


@pytest.mark.parametrize("deadline", [6.5, 7.0, -1.0])
@pytest.mark.parametrize("n", [1, 7])  # fewer than can run together, and more
@pytest.mark.parametrize("busy", [False, True])
def test_a_deadline_that_has_passed_on_the_way_ends_the_request_at_once(deadline: float, n: int, busy: bool) -> None:
    """It is no error: what the request asked for has happened. No place in the queue is needed for that."""
    rig = Rig(PrefixRunner(), max_sequences=2, limits={"max_waiting": 1})
    rig.clock.now = 7.0
    others = [rig.ask([1 + number], max_tokens=3) for number in range(2 * busy) if not rig.core.step()]
    late = rig.ask(deadline=deadline, n=n, max_tokens=5)
    assert [(each.token_ids, each.finish_reason) for each in late.choices()] == [([], "deadline")] * n
    assert late.generation not in rig.core.generations()
    rig.run()
    assert [each.choices()[0].finish_reason for each in others] == ["length"] * len(others)


def test_a_deadline_that_passes_before_the_last_choices_run() -> None:
    rig = Rig(PrefixRunner(), max_sequences=1, limits={"max_waiting": 2})
    answer = rig.ask([1], n=2, deadline=5.0, max_tokens=1)
    rig.core.step()
    rig.ask([9], max_tokens=3)
    for rig.clock.now in (7.0, 8.0):
        rig.core.step()
    assert [each.finish_reason for each in answer.choices()] == ["length", "deadline"]
    rig.run()


def test_a_full_queue_refuses() -> None:
    rig = Rig(PrefixRunner(), max_sequences=1, limits={"max_waiting": 2})
    rig.ask([1], max_tokens=2)
    rig.core.step()
    rig.ask([2])
    rig.ask([3])
    with pytest.raises(QueueFullError, match="2 choices with 2 tokens wait already"):
        rig.ask([4])
    rig.run()
    rig.ask([4])
    rig.run()


def test_what_never_fits_is_refused_with_the_numbers() -> None:
    rig = Rig(PrefixRunner(), num_blocks=3)
    with pytest.raises(CapacityError, match=r"5 prompt tokens and 9 new need 4 blocks of 4 tokens.*has 3, for 12"):
        rig.ask(max_tokens=9)
    rig.ask(max_tokens=8)
    rig.run()


def test_times() -> None:
    rig = Rig(PrefixRunner(), max_sequences=1)
    rig.ask([1], max_tokens=2)
    answer = rig.ask(max_tokens=3)
    for now in (1.0, 2.0, 4.0, 8.0, 16.0):
        rig.clock.now = now
        rig.core.step()
    statistics = answer.output().statistics
    assert (statistics.waiting_seconds, statistics.prefill_seconds, statistics.decode_seconds) == (4.0, 0.0, 12.0)
    assert statistics.longest_pause == 8.0


def test_pads_are_computed_and_seen_by_nobody() -> None:
    runner = PrefixRunner()
    rig = Rig(runner, policy=StaticPolicy(), max_sequences=3)
    answers = [rig.ask([*range(1, length + 1)], max_tokens=new) for length, new in ((2, 1), (5, 4), (3, 2))]
    rig.run()
    assert runner.batches == [15, 3, 3, 3]
    for answer in answers:
        assert answer.ids == [sample.token_id for sample in answer_alone(runner, answer.generation.asked)]
    assert set(runner.pages[rig.num_blocks].values()) == {0}


def lines_of_a_step(waiting: int) -> int:
    """Lines of Python that one step of the core runs, with so many requests waiting behind those that run."""
    rig = Rig(PrefixRunner(), limits={"max_waiting": 20_000, "max_waiting_tokens": 1 << 30})
    for number in range(waiting):
        rig.ask([1 + number % 9], deadline=1e9 + number, max_tokens=9)
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace if "cutaway" in frame.f_code.co_filename else None

    rig.core.step()
    old = sys.gettrace()
    sys.settrace(trace)
    try:
        for _ in range(3):
            rig.core.step()
    finally:
        sys.settrace(old)
    return count


def test_a_step_costs_the_same_however_many_wait() -> None:
    few, many = lines_of_a_step(10), lines_of_a_step(10_000)
    assert few > 300
    assert many <= few + 30, (few, many)
