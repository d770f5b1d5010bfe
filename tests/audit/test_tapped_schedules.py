"""Taps under random schedules: several answers, small pools, cut prompts, steps that fail, requests that are aborted.

Whatever happened, each row is there once, under its answer's name, with the bits of a whole run of its sequence.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cutaway import SamplingParams, TapRequest
from cutaway.errors import InvalidRequestError, QueueFullError
from support.bits import differing
from support.long import LONG
from support.tapped import Asking, TappedEngine, tapped_engine, whole_run
from support.tiny_families import write_case

SCHEDULES = 500 if LONG else 10
NAMES = ("layers.1.attention", "layers.3.resid", "layers.0.kv.keys", "attn.weights", "logits", "embed", "output_norm")
PLACES = ("", "@all", "@generated", "@answer", "@prompt", "@3-30")


class Asked(NamedTuple):
    prompt: list[int]
    params: SamplingParams
    taps: TapRequest | None
    asking: Asking


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_case(tmp_path_factory.mktemp("tiny") / "tiny.gguf", "gemma3")


def ask(engine: TappedEngine, chance: random.Random) -> Iterator[Asked]:
    V = engine.runner.vocab_size
    for _ in range(chance.randint(1, 5)):
        prompt = [chance.randrange(chance.choice([3, V])) for _ in range(chance.randint(1, 40))]
        params = SamplingParams(
            temperature=chance.choice([0, 1.0]),
            seed=chance.randrange(4),
            n=chance.choice([1, 1, 2, 3, 5, 17, 20]),
            max_tokens=chance.randint(1, 12),
            prompt_logprobs=chance.choice([None, None, 1]),
            stop_token_ids=chance.choice([None, [chance.randrange(V) for _ in range(40)]]),
        )
        places = chance.choice(PLACES)
        taps = TapRequest(*(name + places for name in chance.sample(NAMES, chance.randint(1, 4))))
        wanted = taps if chance.random() < 0.7 else None
        with suppress(InvalidRequestError, QueueFullError):  # there are too few positions, or too many wait
            yield Asked(prompt, params, wanted, engine.ask(prompt, params, wanted))


def run(engine: TappedEngine, all_asked: list[Asked], chance: random.Random) -> list[Asking]:
    """To the end of all; those that were aborted."""
    step_tapped, aborted, steps = engine.runner.step_tapped, [], 0

    def unsure(*arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        logits = step_tapped(*arguments)
        if chance.random() < 0.05:
            raise MemoryError("of the test")
        return logits

    engine.runner.step_tapped = unsure  # type: ignore[method-assign]
    while engine.core.has_work:
        with suppress(MemoryError):
            engine.core.step()
        if chance.random() < 0.02:
            engine.core.scheduler.forget_kv("of the test")
        if chance.random() < 0.01:
            one = chance.choice(all_asked).asking
            engine.core.abort(one.received.generation)
            aborted.append(one)
    engine.core.check()
    assert steps or aborted or not any(each.taps for each in all_asked)
    engine.runner.step_tapped = step_tapped  # type: ignore[method-assign]
    return aborted


def check(engine: TappedEngine, asked: Asked, *, is_whole: bool) -> None:
    """is_whole: it was not aborted."""
    prompt, params, taps, asking = asked
    assert asking.error is None
    output = asking.output()
    assert taps is not None
    assert output.taps is not None
    plan, first, keys = taps.plan(engine.runner, len(prompt), params.max_tokens or 1, params.n), len(prompt), set()
    for choice, answer in enumerate(output.outputs):
        if not answer.token_ids:
            continue
        ids = [*prompt, *answer.token_ids[:-1]]
        whole = whole_run(engine.runner, ids)
        for (tensor, layer), mask in plan.wanted.items():
            name = tensor.key(layer)
            of_prompt = [place for place in range(first) if mask[place]]
            of_answer = [place for place in range(first, len(ids)) if mask[place]]
            own = f"choices.{choice}.{name}"
            parts = {name: of_prompt + of_answer} if params.n == 1 else {name: of_prompt, own: of_answer}
            for key, positions in parts.items():
                assert (key in output.taps) == bool(positions), key
                if positions:
                    found = output.taps[key]
                    assert found.positions.tolist() == positions, key
                    if (tensor.name, layer) in whole:
                        want = whole[tensor.name, layer][positions]
                        assert differing(found.values, want[:, : found.values.shape[1]]) == 0, key
                    keys.add(key)
    assert keys == set(output.taps) or not is_whole
    assert sum(each.values.nbytes for each in output.taps.values()) <= plan.num_bytes


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_each_row_is_there_once(tiny: Path, seed: int) -> None:
    chance = random.Random(seed)
    blocks, tokens = chance.choice([9, 12, 20, 64]), chance.choice([16, 24, 40])
    with tapped_engine(tiny, num_blocks=blocks, context=96, max_tokens=tokens) as engine:
        all_asked = list(ask(engine, chance))
        aborted = run(engine, all_asked, chance)
        for each in all_asked:
            if each.taps is not None:
                check(engine, each, is_whole=each.asking not in aborted)
