"""Streams that are left, interrupted, interleaved and shared between threads: the engine stays usable and the answers
stay the same."""

import gc
import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from cutaway import LLM, SamplingParams
from cutaway.engine.llm import Stream
from cutaway.engine.outputs import Delta
from cutaway.errors import ComputationError, CutawayError
from cutaway.ops.cpu.arrays import Batch, Floats
from support.patience import SECONDS, finishes

TEXT = "The sea is"
PARAMS = SamplingParams(temperature=0.8, seed=11, max_tokens=10, ignore_eos=True)


@pytest.fixture(scope="module")
def want(llm: LLM) -> list[int]:
    """The answer to TEXT with PARAMS."""
    return llm.generate(TEXT, PARAMS)[0].outputs[0].token_ids


def answer(llm: LLM) -> list[int]:
    return llm.generate(TEXT, PARAMS)[0].outputs[0].token_ids


@pytest.mark.parametrize("deltas", [0, 4, 10])
@pytest.mark.parametrize("how", ["held", "closed", "forgotten", "in a cycle"])
def test_a_stream_may_be_left_at_any_moment(llm: LLM, want: list[int], deltas: int, how: str) -> None:
    """By the same thread and by another."""

    def leave() -> list[object]:
        stream = llm.stream(TEXT, PARAMS)
        for _ in range(deltas):
            next(stream)
        if how == "closed":
            stream.close()
        elif how == "in a cycle":
            cycle: list[object] = [stream]
            cycle.append(cycle)
        return [stream] if how == "held" else []

    def leave_and_ask() -> list[int]:
        held = leave()
        found = answer(llm)
        held.clear()
        return found

    assert finishes(leave_and_ask) == want
    finishes(leave)
    gc.collect()
    assert finishes(lambda: answer(llm)) == want


def test_output_of_a_stream_that_was_left(llm: LLM, want: list[int]) -> None:
    stream = llm.stream(TEXT, PARAMS)
    deltas = [next(stream) for _ in range(5)]
    output = stream.output()
    assert not output.finished
    assert output.outputs[0].finish_reason is None
    assert output.outputs[0].token_ids == want[:5]
    assert output.outputs[0].text == "".join(delta.text for delta in deltas)
    assert output.seed == 11
    stream.close()
    assert list(stream) == []
    assert stream.output().outputs[0].token_ids == want[:5]


def test_one_thread_may_interleave_streams(llm: LLM) -> None:
    """Each is what it is alone."""
    prompts = [TEXT, "def f(x):\n", "Ein Haus am"]
    alone = [llm.generate(prompt, PARAMS)[0].outputs[0] for prompt in prompts]

    def interleave() -> list[Stream]:
        streams = [llm.stream(prompt, PARAMS) for prompt in prompts]
        order = np.random.default_rng(3).permutation(np.repeat(np.arange(3), 10))
        for which in order:
            next(streams[which])
        return streams

    outputs = [stream.output() for stream in finishes(interleave)]
    assert [each.outputs[0] for each in outputs] == alone
    assert all(each.finished for each in outputs)


def test_a_request_amid_a_stream(llm: LLM, want: list[int]) -> None:
    def nest() -> list[int]:
        ids = []
        for delta in llm.stream(TEXT, PARAMS):
            ids += delta.token_ids
            if len(ids) in (1, 7):
                llm.generate("Something else altogether, and longer:", PARAMS)
        return ids

    assert finishes(nest) == want


def test_logprobs_and_stop_of_an_interleaved_stream(llm: LLM) -> None:
    ids = llm.tokenizer.encode_chat([{"role": "user", "content": "Say yes."}])
    params = SamplingParams(temperature=0, logprobs=2, max_tokens=100)
    alone = llm.generate(ids, params)[0]
    assert alone.outputs[0].finish_reason == "stop"

    def interleave() -> Stream:
        stream = llm.stream(ids, params)
        for number, _ in enumerate(stream):
            if number % 9 == 0:
                llm.generate("1 2 3", SamplingParams(max_tokens=1))
        return stream

    assert finishes(interleave).output().outputs == alone.outputs


def test_several_threads_at_once(llm: LLM) -> None:
    prompts = [f"{number} plus {number} is" for number in range(5)]
    want = [llm.generate(prompt, PARAMS)[0].outputs[0] for prompt in prompts]
    found: dict[tuple[int, int], object] = {}

    def work(number: int) -> None:
        for round in range(2):
            if (number + round) % 2:
                found[number, round] = llm.generate(prompts[number], PARAMS)[0].outputs[0]
            else:
                found[number, round] = llm.stream(prompts[number], PARAMS).run().outputs[0]

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "it hangs"
    assert found == {(number, round): want[number] for number in range(5) for round in range(2)}


def test_another_thread_need_not_wait_for_a_stream(llm: LLM, want: list[int]) -> None:
    stream = llm.stream(TEXT, PARAMS)
    next(stream)
    assert finishes(lambda: answer(llm)) == want
    assert [token for delta in stream for token in delta.token_ids] == want[1:]


def test_a_stream_may_pass_from_thread_to_thread(llm: LLM, want: list[int]) -> None:
    stream = llm.stream(TEXT, PARAMS)
    assert [finishes(lambda: next(stream)).token_ids[0] for _ in range(10)] == want


def test_damaged_logits_end_the_stream_alone(llm: LLM, want: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    step, steps = llm.runner.step, 0

    def damaged(batch: Batch) -> Floats:
        nonlocal steps
        steps += 1
        return step(batch) if steps == 1 else np.full((1, llm.runner.vocab_size), np.nan, np.float32)

    stream = llm.stream(TEXT, PARAMS)
    with monkeypatch.context() as patch:
        patch.setattr(llm.runner, "step", damaged)
        with pytest.raises(ComputationError, match="NaN"):
            list(stream)
    assert stream.output().outputs[0].token_ids == want[:1]
    assert list(stream) == []
    assert finishes(lambda: answer(llm)) == want


def test_ctrl_c_in_the_consumer(llm: LLM, want: list[int]) -> None:
    def consume() -> None:
        for number, _ in enumerate(llm.stream(TEXT, PARAMS)):
            if number == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as kept:  # and with it the frame of the loop, as in a notebook
        consume()
    assert answer(llm) == want
    del kept
    gc.collect()
    assert finishes(lambda: answer(llm)) == want


class Interruption(BaseException):
    """What the alarm raises in the main thread, at any bytecode, as Ctrl-C does."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interruption

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def interrupted(seconds: float, work: Callable[[], object]) -> bool:
    try:
        with alarm(seconds):
            work()
            time.sleep(0.001)
    except Interruption:
        return True
    return False


def test_an_interruption_at_any_moment_leaves_the_engine_usable(llm: LLM, want: list[int]) -> None:
    count = 0
    end = time.monotonic() + 5 * SECONDS
    fractions = itertools.cycle(np.linspace(0.02, 1.0, 24).tolist())
    for tries in itertools.count():
        begin = time.perf_counter()
        assert answer(llm) == want
        whole = time.perf_counter() - begin  # measured each time: others may use the machine, too
        if tries >= 24 and count >= 8:
            return
        assert time.monotonic() < end, f"of {tries} interruptions only {count} came while an answer was computed"
        count += interrupted(next(fractions) * whole, lambda: answer(llm))


def test_threads_may_share_a_stream(llm: LLM, want: list[int]) -> None:
    """Each delta goes to one of them; none is lost, none comes twice."""
    stream = llm.stream(TEXT, PARAMS)
    found: list[list[int]] = [[] for _ in range(4)]

    def pull(mine: list[int]) -> None:
        mine += [token for delta in stream for token in delta.token_ids]

    threads = [threading.Thread(target=pull, args=(mine,), daemon=True) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "it hangs"
    assert stream.output().outputs[0].token_ids == want
    assert sorted(token for mine in found for token in mine) == sorted(want)


@pytest.mark.parametrize("by", ["another thread", "a signal handler"])
def test_a_stream_that_is_closed_amid_a_step_ends_with_it(
    llm: LLM, want: list[int], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Whoever waits for a delta of it is woken; the blocks are free before the next step."""
    step, computing, may_end = llm.runner.step, threading.Event(), threading.Event()
    closed = llm.stream("Something else altogether, and longer:", PARAMS)

    def slow_step(batch: Batch) -> Floats:
        logits = step(batch)
        if not computing.is_set():
            computing.set()
            assert may_end.wait(SECONDS)
        return logits

    monkeypatch.setattr(llm.runner, "step", slow_step)
    deltas: list[list[Delta]] = []
    if by == "a signal handler":
        before = signal.signal(signal.SIGALRM, lambda *_: (closed.close(), may_end.set())[0])
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            deltas.append(list(closed))
        finally:
            signal.signal(signal.SIGALRM, before)
    else:
        waiting = threading.Thread(target=lambda: deltas.append(list(closed)), daemon=True)
        waiting.start()
        assert computing.wait(SECONDS)
        closed.close()
        may_end.set()
        waiting.join(SECONDS)
        assert not waiting.is_alive(), "it hangs"
    assert deltas == [[]]
    assert closed.output().outputs[0].finish_reason is None
    assert answer(llm) == want
    assert not llm._core.has_work


class Doorway:
    """The engine's commands, and something that happens while the first of them is put there."""

    def __init__(self, commands: Any, happens: Callable[[], object]) -> None:
        self._commands, self._happens = commands, happens

    def put(self, command: Any) -> None:
        happens, self._happens = self._happens, lambda: None
        happens()
        self._commands.put(command)


def test_a_signal_handler_may_ask_while_a_request_is_submitted(
    llm: LLM, want: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[int]] = []

    def work() -> list[int]:
        return answer(llm)

    # As a signal handler would run, within the same thread.
    engine = llm.engine()
    monkeypatch.setattr(engine, "_commands", Doorway(engine._commands, lambda: found.append(answer(llm))))
    assert finishes(work) == want
    assert found == [want]


def test_a_signal_handler_may_close_while_a_request_is_submitted(smollm2_path: Path) -> None:
    llm = LLM(smollm2_path, threads=1, max_model_len=64)
    engine = llm.engine()
    engine._commands = Doorway(engine._commands, llm.close)  # type: ignore[assignment]
    with pytest.raises(CutawayError, match="this LLM is closed"):
        finishes(lambda: answer(llm))


def test_a_stream_that_is_closed_while_it_is_submitted(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """The abort comes before there is a request to be aborted."""
    stream = llm.stream(TEXT, SamplingParams(max_tokens=900, ignore_eos=True))
    engine = llm.engine()
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_commands", Doorway(engine._commands, stream.close))
        assert finishes(lambda: list(stream)) == []
    assert engine.call(lambda core: len(core.generations())).result(SECONDS) == 0


def test_an_error_in_a_step_reaches_everybody_who_waits(
    llm: LLM, want: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    step, count = llm.runner.step, 0

    def breaks(batch: Batch) -> Floats:
        nonlocal count
        count += len(batch.output_rows) == 3
        if count == 2:
            raise MemoryError("of the test")
        return step(batch)

    errors: list[BaseException] = []

    def pull(stream: Stream) -> None:
        try:
            list(stream)
        except BaseException as error:
            errors.append(error)

    streams = [llm.stream(TEXT, SamplingParams(max_tokens=500, ignore_eos=True)) for _ in range(3)]
    threads = [threading.Thread(target=pull, args=(stream,), daemon=True) for stream in streams]
    with monkeypatch.context() as patch:
        patch.setattr(llm.runner, "step", breaks)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive(), "it hangs"
    assert [str(error) for error in errors] == ["of the test"] * 3
    assert finishes(lambda: answer(llm)) == want
    assert llm.engine().call(lambda core: core.scheduler.check()).result() is None


def test_an_engine_that_is_forgotten_ends_its_thread(smollm2_path: Path) -> None:
    def threads() -> int:
        return sum(thread.name == "cutaway-engine" for thread in threading.enumerate())

    gc.collect()
    before = threads()
    llm = LLM(smollm2_path, threads=1, max_model_len=64)
    next(llm.stream(TEXT, PARAMS))
    assert threads() == before + 1
    del llm
    gc.collect()
    assert threads() == before
