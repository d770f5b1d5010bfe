"""Each request's tokens and logprobs are those of its run alone, whoever shares its steps and whatever happens to them:
random requests over a runner without a model, in pools so small that preemption is the rule.
"""

import os
import random
from collections import Counter
from contextlib import suppress

import pytest
from core_rig import Answer, Rig, SeenTokens, answer_alone
from prefix_runner import PrefixRunner

from cutaway.errors import QueueFullError
from cutaway.scheduler.continuous import ContinuousPolicy
from cutaway.scheduler.policy import Policy
from cutaway.scheduler.static import StaticPolicy

SEEDS = 400 if os.environ.get("CUTAWAY_LONG_TESTS") == "1" else 24
CONTEXT = 40


def policy_of(name: str) -> Policy:
    if name.startswith("continuous"):
        return ContinuousPolicy(chunked_prefill=name == "continuous")
    return StaticPolicy(bucketed=name == "bucketed")


def rig_of(rng: random.Random, name: str) -> Rig:
    page, rows = rng.choice((1, 2, 4, 16)), rng.choice((1, 2, 3, 5))
    least = -(-CONTEXT // page)
    runner = PrefixRunner(CONTEXT, rows + rng.choice((0, 3, 60)), 20, rng.choice((1, 9)), page)
    keeps = not name.startswith("continuous") or rng.random() < 0.8
    return Rig(
        runner,
        num_blocks=rng.choice((least, least + 1, least + least // 2)),
        policy=policy_of(name),
        max_sequences=rows,
        prefix_cache=keeps and rng.random() < 0.7,
        keeps_kv=keeps,
        limits={"max_waiting": rng.choice((3, 1000))},
    )


def ask_something(rng: random.Random, rig: Rig, prefixes: list[list[int]]) -> Answer:
    """A request that may begin as others do."""
    length = rng.randint(1, 30)
    shared = rng.randint(0, length)
    prompt = rng.choice(prefixes)[:shared] + [rng.randrange(20) for _ in range(length - shared)]
    watched = isinstance(rig.core.scheduler.policy, ContinuousPolicy) and rng.random() < 0.3
    return rig.ask(
        prompt,
        watch=SeenTokens(needs_all_logits=rng.random() < 0.5) if watched else None,
        seed=rng.randrange(5),
        stop_ids=rng.choice(((), (3,), range(6))),
        priority=rng.randrange(3),
        n=1 if watched else rng.choice((1, 1, 1, 2, 7)),
        temperature=rng.choice((0.0, 0.7, 2.0)),
        max_tokens=rng.choice((1, 3, 10, None)),
        min_tokens=rng.choice((0, 1)),
        repetition_penalty=rng.choice((1.0, 1.3)),
        presence_penalty=rng.choice((0.0, 0.5)),
        top_k=rng.choice((0, 5)),
        logprobs=rng.choice((None, 2)),
        prompt_logprobs=rng.choice((None, None, 1)),
    )


def check(rig: Rig, answer: Answer, events: Counter[str]) -> None:
    output = answer.output()
    asked = answer.generation.asked
    assert answer.error is None
    aborted = any(each.finish_reason == "abort" for each in output.outputs)
    for each in output.outputs:
        want = answer_alone(rig.runner, asked, each.index)
        ids = [sample.token_id for sample in want]
        assert each.token_ids == ids[: len(each.token_ids)]
        if each.finish_reason != "abort":
            assert each.token_ids == ids
            assert each.finish_reason == ("stop" if ids[-1] in asked.stop_ids else "length")
        if asked.params.logprobs is not None:
            found = [entries[token].logprob for token, entries in zip(ids, each.logprobs or (), strict=False)]
            assert found == [sample.logprob for sample in want][: len(found)]
            assert len(found) == len(each.token_ids)
    assert output.statistics.generated_tokens == sum(len(each.token_ids) for each in output.outputs)
    if asked.params.prompt_logprobs is not None and not aborted:
        assert output.prompt_logprobs is not None
        assert len(output.prompt_logprobs) == len(asked.prompt_ids)
        assert output.num_cached_tokens == 0
        events["scored"] += 1
    if answer.generation.watched is not None:
        check_seen(rig, answer)
        events["watched"] += not aborted
    events["aborted" if aborted else "whole"] += 1
    events["cached"] += output.num_cached_tokens > 0


def check_seen(rig: Rig, answer: Answer) -> None:
    """A watch has seen each of its request's tokens, and nothing else; and the logits of those that it wanted."""
    seen, prompt, ids = answer.generation.watched.watch, answer.generation.asked.prompt_ids, answer.ids  # type: ignore[union-attr]
    assert isinstance(seen, SeenTokens)
    whole = [*prompt, *ids]
    ended = answer.output().outputs[0].finish_reason != "abort"
    computed = sorted(seen.tokens)
    assert computed == list(range(len(whole) - 1 if ended else len(computed)))
    assert [seen.tokens[position] for position in computed] == whole[: len(computed)]
    if ended:
        all_logits = seen.needs_all_logits or answer.generation.asked.params.prompt_logprobs is not None
        first = 0 if all_logits else len(prompt) - 1
        assert sorted(seen.logits) == list(range(first, len(whole) - 1))
    for position, logits in seen.logits.items():
        assert logits == rig.runner.logits_after(whole[: position + 1]).tobytes()
    assert answer.output().num_cached_tokens == 0


@pytest.mark.parametrize("name", ["continuous", "continuous, whole prompts", "static", "bucketed"])
def test_neighbours_change_nothing(name: str) -> None:
    events: Counter[str] = Counter()
    for seed in range(SEEDS):
        rng = random.Random(f"{name} {seed}")
        rig = rig_of(rng, name)
        prefixes = [[rng.randrange(20) for _ in range(30)] for _ in range(2)]
        answers: list[Answer] = []
        try:
            while rig.core.has_work or len(answers) < 12:
                if len(answers) < 12 and rng.random() < 0.6:
                    with suppress(QueueFullError):
                        answers.append(ask_something(rng, rig, prefixes))
                if answers and rng.random() < 0.05:
                    rig.core.abort(rng.choice(answers).generation)
                rig.core.step()
                rig.core.check()
            rig.run()
            for answer in answers:
                check(rig, answer, events)
        except BaseException:
            print(f"seed {seed}")
            raise
        events["preempted"] += sum(each.action == "preempted" for each in rig.core.scheduler.log.read())
        events["copied"] += len(rig.runner.copies)
    needed = {"whole", "aborted", "scored"}
    if name.startswith("continuous"):
        needed |= {"preempted", "copied", "cached", "watched"}
    assert {event for event in needed if not events[event]} == set(), events
