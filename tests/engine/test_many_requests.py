"""Many requests with the real model: each one's tokens and logprobs are those of its run alone, to the bit."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway import LLM, SamplingParams
from cutaway.engine.outputs import RequestOutput
from cutaway.engine.stream import Stream
from cutaway.errors import InvalidRequestError
from support.patience import finishes

rng = np.random.default_rng(8)
SHARED = rng.integers(100, 40000, 40).tolist()


def params_of(number: int) -> SamplingParams:
    """Greedy, sampled, filtered, penalised in turn; lengths differ."""
    kinds: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 0.8, "seed": number},
        {"temperature": 1.2, "seed": number, "top_k": 40, "top_p": 0.9},
        {"temperature": 0.7, "seed": number, "repetition_penalty": 1.3, "presence_penalty": 0.5},
        {"temperature": 1, "seed": number, "n": 3},
    ]
    return SamplingParams(max_tokens=2 + 3 * (number % 4), logprobs=2, ignore_eos=True, **kinds[number % 5])


REQUESTS = [
    (SHARED[: 8 * (number % 6)] + rng.integers(100, 40000, 1 + 9 * (number % 5)).tolist(), params_of(number))
    for number in range(12)
]


@pytest.fixture(scope="module")
def alone(smollm2_path: Path) -> list[RequestOutput]:
    """Each as if there were no other, and nothing had been before."""
    with LLM(smollm2_path, threads=2, max_model_len=128, max_num_seqs=3, enable_prefix_caching=False) as llm:
        return [llm.generate(prompt, params)[0] for prompt, params in REQUESTS]


SETTINGS: dict[str, dict[str, Any]] = {
    "continuous": {},
    "small steps": {"max_num_batched_tokens": 9, "max_num_seqs": 5},
    "whole prompts": {"enable_chunked_prefill": False},
    "preemption": {"kv_tokens": 144, "max_num_seqs": 8},
    "contiguous": {"kv": "contiguous", "kv_tokens": 384},
    "none": {"kv": "none", "max_num_seqs": 4},
    "static": {"batching": "static", "max_num_seqs": 4, "kv_tokens": 512},
    "static, one step a column": {"batching": "static", "max_num_batched_tokens": 7, "max_num_seqs": 5},
    "bucketed": {"batching": "bucketed", "kv_tokens": 1024},
    "one place to wait": {"max_waiting": 1, "max_num_seqs": 2},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_neighbours_change_no_bit(smollm2_path: Path, alone: list[RequestOutput], name: str) -> None:
    count = 5 if name == "none" else len(REQUESTS)
    requests, expected = REQUESTS[:count], alone[:count]
    prompts, params = zip(*requests, strict=True)
    with LLM(smollm2_path, threads=1, max_model_len=128, **SETTINGS[name]) as llm:
        for _ in range(1 + llm.settings.enable_prefix_caching):  # again with what the first time has left in the cache
            outputs = llm.generate(list(prompts), list(params))
            for output, want in zip(outputs, expected, strict=True):
                assert output.outputs == want.outputs
        decisions = [each.action for each in llm.decisions()]
        if name == "preemption":
            assert decisions.count("preempted") > 2
        if "batching" in SETTINGS[name]:
            assert llm.totals().pads > 0
        if llm.settings.enable_prefix_caching:
            assert sum(output.num_cached_tokens for output in outputs) > 0


@pytest.mark.parametrize("batching", ["continuous", "static"])
def test_aborted_neighbours_change_no_bit(smollm2_path: Path, alone: list[RequestOutput], batching: str) -> None:
    """Streams that are left at all moments, by other threads, while the requests run."""
    tokens = 256 if batching == "continuous" else 1024
    with LLM(smollm2_path, threads=2, max_model_len=128, kv_tokens=tokens, max_num_seqs=6, batching=batching) as llm:
        over = threading.Event()

        def leave_streams() -> int:
            count = 0
            while not over.is_set():
                ids, params = REQUESTS[(7 * count) % len(REQUESTS)]
                stream: Stream = llm.stream(ids, params)
                for _ in range(count % 5):
                    next(stream, None)
                stream.close()
                count += 1
            return count

        counts: list[int] = []
        leaver = threading.Thread(target=lambda: counts.append(leave_streams()), daemon=True)
        leaver.start()
        prompts, params = zip(*REQUESTS, strict=True)
        outputs = finishes(lambda: llm.generate(list(prompts), list(params)))
        over.set()
        finishes(leaver.join)
        assert counts[0] > 2
        assert [output.outputs for output in outputs] == [want.outputs for want in alone]


INT8: dict[str, dict[str, Any]] = {name: SETTINGS[name] for name in ("continuous", "preemption", "static")}


@pytest.fixture(scope="module")
def alone_int8(smollm2_path: Path) -> list[RequestOutput]:
    """The same with keys and values in int8."""
    with LLM(
        smollm2_path, threads=2, max_model_len=128, max_num_seqs=3, enable_prefix_caching=False, kv_dtype="int8"
    ) as llm:
        return [llm.generate(prompt, params)[0] for prompt, params in REQUESTS]


@pytest.mark.parametrize("name", INT8)
def test_neighbours_change_no_bit_of_int8(
    smollm2_path: Path, alone: list[RequestOutput], alone_int8: list[RequestOutput], name: str
) -> None:
    """With requests that are aborted among them."""
    assert [each.outputs for each in alone_int8] != [each.outputs for each in alone]  # it is another cache
    prompts, params = zip(*REQUESTS, strict=True)
    with LLM(smollm2_path, threads=1, max_model_len=128, kv_dtype="int8", **INT8[name]) as llm:
        leaving = [llm.stream(prompt, params) for prompt, params in REQUESTS[:3]]
        for stream in leaving:
            next(stream)
        aborting = threading.Thread(target=lambda: [stream.close() for stream in leaving], daemon=True)
        aborting.start()
        outputs = finishes(lambda: llm.generate(list(prompts), list(params)))
        finishes(aborting.join)
        assert [each.outputs for each in outputs] == [each.outputs for each in alone_int8]
        actions = [each.action for each in llm.decisions()]
        if name == "preemption":
            assert actions.count("preempted") > 2
        if name == "static":
            assert llm.totals().pads > 0


PRIMES = "List the first five prime numbers."


def test_a_greedy_answer_alone_and_among_45(llm: LLM) -> None:
    """Five times alone, then first, amid and last among others: the same tokens and logprobs each time."""
    greedy = SamplingParams(temperature=0, max_tokens=8, logprobs=1, ignore_eos=True)
    others = [[100 + number] * (1 + number % 7) for number in range(45)]
    first = llm.generate(PRIMES, greedy)[0].outputs
    assert all(llm.generate(PRIMES, greedy)[0].outputs == first for _ in range(4))
    short = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    for place in (0, 22, 45):
        prompts = [*others[:place], PRIMES, *others[place:]]
        params = [greedy if prompt is PRIMES else short for prompt in prompts]
        assert llm.generate(prompts, params)[place].outputs == first


def test_200_aborts_leave_every_block_free(smollm2_path: Path) -> None:
    """Left while queued, in the prompt, behind some tokens, at the end; with three choices; with a shared beginning."""
    with LLM(
        smollm2_path, threads=2, max_model_len=64, kv_tokens=128, max_num_seqs=3, max_num_batched_tokens=12
    ) as llm:

        def blocks() -> tuple[int, int, bool]:
            def look(core: Any) -> tuple[int, int, bool]:
                pool = core.scheduler.blocks.pool
                return pool.num_free, sum(pool.references), core.has_work

            return llm.engine().call(look).result()

        start = blocks()
        assert start == (8, 0, False)
        ended = 0
        for number in range(200):
            ids = [*SHARED[: 1 + 6 * (number % 4)], 200 + number]
            params = SamplingParams(
                max_tokens=4, temperature=1, seed=number, ignore_eos=True, n=1 + 2 * (number % 4 == 3)
            )
            streams = [llm.stream(ids, params) for _ in range(1 + number % 2)]
            for place, stream in enumerate(streams):
                for _ in range((number + place) % 6):
                    ended += next(stream, None) is None
            for stream in streams:
                stream.close()
                stream.close()
            assert blocks() == start, number
        assert 0 < ended < 200  # some had come to their end before


def test_the_order_of_the_prompts_is_that_of_the_outputs(llm: LLM) -> None:
    """Many more than run together or may wait; the short ones end first."""
    prompts = [[100 + number] * (1 + number % 3) for number in range(200)]
    params = [SamplingParams(max_tokens=1 + number % 4, temperature=0, ignore_eos=True) for number in range(200)]
    outputs = llm.generate(prompts, params)
    assert [output.prompt_token_ids for output in outputs] == prompts
    assert [len(output.outputs[0].token_ids) for output in outputs] == [1 + number % 4 for number in range(200)]


def test_an_error_of_one_ends_all_of_its_call(llm: LLM) -> None:
    """Its parameters allow no token; the other requests of the call are aborted, those of others are not."""
    ids = llm.tokenizer.encode("The sea")
    (red,) = llm.tokenizer.encode(" red")
    impossible = SamplingParams(allowed_token_ids=[red], bad_words=["red"])
    other = llm.stream(ids, SamplingParams(temperature=0, max_tokens=50, ignore_eos=True))
    next(other)
    with pytest.raises(InvalidRequestError, match="none is left"):
        llm.generate([ids, ids], [SamplingParams(max_tokens=900, ignore_eos=True), impossible])
    assert len(other.run().outputs[0].token_ids) == 50
    assert llm.engine().call(lambda core: core.has_work).result() is False


def test_two_interruptions_leave_no_request_behind(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C pressed twice: the second one comes while the list is being aborted for the first."""
    commands = llm.engine()._commands

    class Pressed:
        """Passes commands on, and raises behind the first abort."""

        def __init__(self) -> None:
            self.count = 0

        def put(self, command: Any) -> None:
            commands.put(command)
            self.count += 1
            if self.count == 2:  # the first was to hold the list
                raise KeyboardInterrupt

    @contextmanager
    def pressed_at_first(count: int, shown: bool) -> Iterator[Callable[[], None]]:
        def press() -> None:
            raise KeyboardInterrupt

        yield press

    monkeypatch.setattr("cutaway.engine.llm.progress_bar", pressed_at_first)
    monkeypatch.setattr(llm.engine(), "_commands", Pressed())
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["One", "Two", *["Three"] * 100], SamplingParams(max_tokens=20, ignore_eos=True))
    monkeypatch.undo()
    assert llm.engine().call(lambda core: len(core.generations())).result() == 0
