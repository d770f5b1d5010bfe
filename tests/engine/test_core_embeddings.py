"""Embeddings in an engine core without a model: chunks, preemption, the prefix cache, and answers beside them."""

from typing import Any

import numpy as np
import pytest
from core_rig import Rig, answer_alone
from prefix_runner import PrefixRunner

from cutaway.scheduler.continuous import ContinuousPolicy
from cutaway.scheduler.static import StaticPolicy

PROMPTS = [[7, 0, 49, 7, 12, 3, 3, 8, 1], [5], [7, 0, 49, 7, 12, 4], [2] * 14, [7, 0, 49, 7, 12, 3, 3, 8, 1]]


def pooled(runner: PrefixRunner, ids: list[int], pooling: str) -> list[float]:
    """The embedding of a prompt, from its states alone."""
    states = [runner.hidden_after(ids[: end + 1]).astype(np.float64) for end in range(len(ids))]
    total = states[-1] if pooling == "last" else sum(states[1:], states[0])
    return (total / np.sqrt((total**2).sum())).astype(np.float32).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_blocks": 9},  # the longest prompt, and little more: others are preempted
        {"prefix_cache": False, "keeps_kv": False},
        {"policy": StaticPolicy(), "prefix_cache": False},
        {"policy": ContinuousPolicy(chunked_prefill=False)},
    ],
    ids=["paged", "preempted", "nothing kept", "static", "whole prompts"],
)
@pytest.mark.parametrize("budget", [4, 64])
def test_each_is_what_it_is_alone(options: dict[str, Any], pooling: Any, budget: int) -> None:
    """Answers run beside them, and are theirs."""
    rig = Rig(PrefixRunner(max_step_tokens=budget), **options)
    answers = [rig.ask(ids, max_tokens=9) for ids in PROMPTS[:3]]
    embeddings = [rig.ask(ids, pooling=pooling) for ids in PROMPTS]
    rig.run()
    for answer in answers:
        alone = answer_alone(rig.runner, answer.generation.asked)
        assert answer.ids == [each.token_id for each in alone]
    for ids, each in zip(PROMPTS, embeddings, strict=True):
        output = each.output()
        assert output.outputs[0].token_ids == []
        assert (output.finished, output.statistics.generated_tokens) == (True, 0)
        found = each.received.embedding()
        np.testing.assert_allclose(found.outputs.embedding, pooled(rig.runner, ids, pooling), rtol=1e-6)
        if pooling == "mean":
            assert found.num_cached_tokens == 0
    if "num_blocks" in options:
        assert rig.core.scheduler.num_preemptions > 0
    assert rig.core.totals.sampled == sum(len(answer.ids) for answer in answers), "no token was sampled for them"


def test_an_embedding_that_fails_ends_alone() -> None:
    rig = Rig(PrefixRunner())
    bad, good = rig.ask(PROMPTS[0], pooling="mean"), rig.ask(PROMPTS[1], pooling="mean")

    def spoilt(*given: object) -> None:
        raise ZeroDivisionError("of the test")

    bad.generation.pool.add = spoilt  # type: ignore[method-assign, union-attr]
    rig.run()
    assert isinstance(bad.error, ZeroDivisionError)
    assert good.error is None
    assert good.output().finished


def test_an_abort() -> None:
    rig = Rig(PrefixRunner(max_step_tokens=4))
    each = rig.ask(PROMPTS[3], pooling="mean")
    rig.core.step()
    rig.core.abort(each.generation)
    rig.run()
    assert each.output().outputs[0].finish_reason == "abort"
