"""The engine for asyncio: streams side by side, from several event loops; aborts, deadlines, errors, the end."""

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cutaway import LLM, AsyncEngine, CutawayError, SamplingParams
from cutaway.engine.async_engine import AsyncStream
from cutaway.engine.outputs import Delta
from cutaway.errors import CapacityError, InvalidRequestError, QueueFullError
from cutaway.ops.cpu.arrays import Batch, Floats
from support.patience import SECONDS, finishes

TEXT = "The sea is"
PARAMS = SamplingParams(temperature=0.8, seed=11, max_tokens=10, ignore_eos=True, logprobs=1)
LONG = SamplingParams(temperature=0, max_tokens=900, ignore_eos=True)

Result = TypeVar("Result")


def run(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """The coroutine's result; AssertionError if it hangs."""
    return finishes(lambda: asyncio.run(main()))


def running(llm: LLM) -> int:
    """Requests that the engine has, after what was commanded so far."""
    return llm.engine().call(lambda core: len(core.generations())).result(SECONDS)


def test_streams_side_by_side_are_those_of_runs_alone(llm: LLM) -> None:
    prompts = [f"{number} and {number} make" for number in range(9)]
    want = [llm.generate(prompt, PARAMS)[0].outputs for prompt in prompts]

    async def main() -> tuple[list[Any], list[list[Delta]]]:
        engine = AsyncEngine(llm)
        streams = [await engine.submit(prompt, PARAMS) for prompt in prompts]

        async def pull(stream: AsyncStream) -> list[Delta]:
            return [delta async for delta in stream]

        deltas = await asyncio.gather(*map(pull, streams))
        return [stream.output() for stream in streams], deltas

    outputs, deltas = run(main)
    assert [output.outputs for output in outputs] == want
    for output, mine in zip(outputs, deltas, strict=True):
        assert "".join(delta.text for delta in mine) == output.outputs[0].text
        assert len(mine) == 10
        assert mine[-1].finish_reason == "length"
        assert output.finished
    assert len({output.request_id for output in outputs}) == 9
    assert running(llm) == 0


def test_several_event_loops_share_the_engine(llm: LLM) -> None:
    want = llm.generate(TEXT, PARAMS)[0].outputs
    engine = AsyncEngine(llm)
    found: list[Any] = []

    async def main() -> None:
        streams = [await engine.submit(TEXT, PARAMS) for _ in range(3)]
        found.extend([(await stream.run()).outputs for stream in streams])

    threads = [threading.Thread(target=lambda: asyncio.run(main()), daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    found.append(llm.generate(TEXT, PARAMS)[0].outputs)  # and the LLM itself beside it
    for thread in threads:
        finishes(thread.join)
    assert found == [want] * 10


def test_a_chat(llm: LLM) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    want, own = (llm.chat(messages, PARAMS, **template)[0] for template in ({"chat_template": "chatml"}, {}))

    async def main() -> Any:
        return await (await AsyncEngine(llm).submit_chat(messages, PARAMS, chat_template="chatml")).run()

    output = run(main)
    assert (output.prompt, output.prompt_token_ids) == (want.prompt, want.prompt_token_ids)
    assert output.outputs == want.outputs
    assert output.prompt != own.prompt  # the model's own template has a system message


@pytest.mark.parametrize("chat", [False, True])
def test_salts_part_the_prefix_cache(llm: LLM, chat: bool) -> None:
    """The tokens are the same, and what one has computed saves another nothing."""
    prompt = "A text that is long enough for some blocks of the cache, whoever asks for it. " * 4
    llm.reset_prefix_cache()

    async def main() -> list[Any]:
        engine, outputs = AsyncEngine(llm), []
        for salt in (b"a", b"a", b"b", b""):
            if chat:
                messages = [{"role": "user", "content": prompt}]
                stream = await engine.submit_chat(messages, PARAMS, salt=salt, chat_template="chatml")
            else:
                stream = await engine.submit(prompt, PARAMS, salt=salt)
            outputs.append(await stream.run())
        return outputs

    first, again, other, plain = run(main)
    assert first.num_cached_tokens == other.num_cached_tokens == plain.num_cached_tokens == 0
    assert again.num_cached_tokens > 16
    assert first.outputs == again.outputs == other.outputs == plain.outputs


def test_abort(llm: LLM) -> None:
    async def main() -> None:
        engine = AsyncEngine(llm)
        stream = await engine.submit(TEXT, LONG)
        await anext(stream)
        assert engine.abort(stream.request_id)
        rest = [delta async for delta in stream]
        assert rest[-1].finish_reason == "abort"
        assert stream.output().outputs[0].finish_reason == "abort"
        assert stream.output().finished
        assert not engine.abort(stream.request_id)
        assert not engine.abort("unknown")

    run(main)
    assert running(llm) == 0


def test_what_has_ended_is_not_aborted_though_nobody_has_iterated_it(llm: LLM) -> None:
    async def main() -> None:
        engine = AsyncEngine(llm)
        stream = await engine.submit(TEXT, PARAMS)
        while await asyncio.to_thread(running, llm):
            assert not stream.finished
        assert stream.ended
        assert not engine.abort(stream.request_id)
        output = await stream.run()
        assert output.outputs[0].finish_reason == "length"
        assert len(output.outputs[0].token_ids) == 10

    run(main)


def test_a_cancelled_task_and_a_forgotten_stream_abort(llm: LLM) -> None:
    async def main() -> None:
        engine = AsyncEngine(llm)

        async def consume() -> None:
            async for _ in await engine.submit(TEXT, LONG):
                reached.set()

        reached = asyncio.Event()
        task = asyncio.create_task(consume())
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(running, llm) == 0
        stream: AsyncStream | None = await engine.submit(TEXT, LONG)
        assert stream is not None
        await anext(stream)
        stream = None
        gc.collect()
        assert await asyncio.to_thread(running, llm) == 0

    run(main)


def test_a_submission_that_is_cancelled(llm: LLM) -> None:
    async def main() -> None:
        engine = AsyncEngine(llm)
        for turns in range(4):
            task = asyncio.create_task(engine.submit(TEXT, LONG))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            del task

    run(main)
    gc.collect()
    assert running(llm) == 0


def test_a_loop_that_is_closed_amid_its_requests(llm: LLM) -> None:
    kept: list[AsyncStream] = []

    async def main() -> None:
        engine = AsyncEngine(llm)
        kept.append(await engine.submit(TEXT, LONG))
        await anext(kept[0])

    run(main)
    end = threading.Event()
    for _ in range(int(SECONDS * 100)):
        if running(llm) == 0:
            break
        end.wait(0.01)
    assert running(llm) == 0
    assert len(llm.generate(TEXT, PARAMS)[0].outputs[0].token_ids) == 10


def test_a_loop_that_is_closed_before_it_has_read_what_came(llm: LLM) -> None:
    """It was called already when it stopped, so nobody calls it again; the request is ended all the same."""
    loop, kept = asyncio.new_event_loop(), []

    async def main() -> None:
        kept.append(await AsyncEngine(llm).submit(TEXT, LONG))
        await anext(kept[0])

    def count() -> int:
        return finishes(lambda: llm.totals().steps)

    loop.run_until_complete(main())
    before = count()
    while count() < before + 2:
        assert running(llm) == 1
    loop.close()
    before = count()
    while running(llm):
        assert count() < before + 100, "it runs on"


def test_tasks_may_share_a_stream(llm: LLM) -> None:
    """Each delta goes to one of them; none is lost where several come at once, and all tasks see the end."""
    params = SamplingParams(n=3, seed=5, max_tokens=12, ignore_eos=True)
    want = llm.generate(TEXT, params)[0].outputs

    async def main() -> None:
        stream = await AsyncEngine(llm).submit(TEXT, params)

        async def pull() -> int:
            return len([delta async for delta in stream])

        counts = await asyncio.wait_for(asyncio.gather(*(pull() for _ in range(4))), SECONDS)
        assert sum(counts) == 36
        assert stream.output().outputs == want

    run(main)


@pytest.mark.parametrize("ends", ["error", "cancel", "abort"])
def test_the_end_of_a_shared_stream_reaches_all_its_tasks(llm: LLM, monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    def breaks(batch: Batch) -> Floats:
        raise MemoryError("of the test")

    async def main() -> None:
        stream = await AsyncEngine(llm).submit(TEXT, LONG)
        await anext(stream)

        async def pull() -> None:
            async for _ in stream:
                pass

        tasks = [asyncio.create_task(pull()) for _ in range(3)]
        await asyncio.sleep(0.02)
        if ends == "error":
            monkeypatch.setattr(llm.runner, "step", breaks)
        elif ends == "cancel":
            tasks[1].cancel()
        else:
            stream.abort()
        _, waiting = await asyncio.wait(tasks, timeout=SECONDS)
        assert not waiting, "it hangs"

    run(main)
    assert running(llm) == 0


def test_a_stream_in_another_loop(llm: LLM) -> None:
    """It would wait for ever: what the engine has for it goes to its own loop."""
    kept: list[AsyncStream] = []

    async def submit() -> None:
        kept.append(await AsyncEngine(llm).submit(TEXT, PARAMS))

    async def iterate() -> None:
        with pytest.raises(CutawayError, match="belongs to the event loop in which it was submitted"):
            await anext(kept[0])

    run(submit)
    run(iterate)


@pytest.mark.parametrize("timeout", [1e-9, 0.002])
def test_a_deadline_before_the_engine_has_the_request(llm: LLM, timeout: float) -> None:
    """However it is asked for, it ends as by any deadline; of many, those that ended before it keep their answers."""

    async def main() -> Any:
        return await (await AsyncEngine(llm).submit(TEXT, LONG, timeout=timeout)).run()

    stream = llm.stream(TEXT, LONG, timeout=timeout)
    threading.Event().wait(2 * timeout)
    outputs = [run(main), stream.run(), *llm.generate([TEXT] * 1500, LONG, timeout=timeout)]
    assert {output.outputs[0].finish_reason for output in outputs} == {"deadline"}
    assert running(llm) == 0


def test_a_deadline(llm: LLM) -> None:
    async def main() -> Any:
        return await (await AsyncEngine(llm).submit(TEXT, LONG, timeout=0.05)).run()

    output = run(main)
    assert output.outputs[0].finish_reason == "deadline"
    assert output.finished
    assert len(output.outputs[0].token_ids) < 900
    assert llm.generate(TEXT, LONG, timeout=0.05)[0].outputs[0].finish_reason == "deadline"
    assert [*llm.stream(TEXT, LONG, timeout=0.05)][-1].finish_reason == "deadline"


def test_an_error_in_a_step_reaches_everybody(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(batch: Batch) -> Floats:
        raise MemoryError("of the test")

    async def main() -> list[object]:
        engine = AsyncEngine(llm)
        streams = [await engine.submit(TEXT, LONG) for _ in range(3)]
        for stream in streams:
            await anext(stream)
        with monkeypatch.context() as patch:
            patch.setattr(llm.runner, "step", breaks)
            errors = await asyncio.gather(*(stream.run() for stream in streams), return_exceptions=True)
        again = await (await engine.submit(TEXT, PARAMS)).run()
        assert len(again.outputs[0].token_ids) == 10
        return errors

    errors = run(main)
    assert [(type(error), str(error)) for error in errors] == [(MemoryError, "of the test")] * 3


@pytest.mark.parametrize(
    ("prompt", "options", "error", "message"),
    [
        ("", {}, InvalidRequestError, "the prompt is empty"),
        ([-1], {}, InvalidRequestError, "token 0 is -1"),
        ([5] * 1024, {}, CapacityError, "the prompt has 1024 tokens; the context holds 1024"),
        (TEXT, {"priority": 8}, InvalidRequestError, "priority is 8; it must be 0 to 7"),
        (TEXT, {"priority": 0.5}, InvalidRequestError, r"priority is 0\.5; it must be an integer"),
        (TEXT, {"timeout": 0}, InvalidRequestError, "timeout is 0; it must be seconds above 0"),
        (TEXT, {"timeout": float("inf")}, InvalidRequestError, "timeout is inf; it must be seconds above 0"),
        (TEXT, {"timeout": float("nan")}, InvalidRequestError, "timeout is nan; it must be seconds above 0"),
        (TEXT, {"timeout": 10**400}, InvalidRequestError, "timeout is 1000"),
        (TEXT, {"timeout": 10**5000}, InvalidRequestError, "timeout is a int that can't be shown"),
        (TEXT, {"sampling_params": 5}, InvalidRequestError, "sampling_params is 5; give a SamplingParams"),
    ],
)
def test_what_is_refused_at_once(
    llm: LLM, prompt: Any, options: dict[str, Any], error: type[CutawayError], message: str
) -> None:
    async def main() -> None:
        with pytest.raises(error, match=message):
            await AsyncEngine(llm).submit(prompt, **options)

    run(main)
    assert running(llm) == 0


@pytest.fixture
def small(smollm2_path: Path) -> Iterator[LLM]:
    """One sequence runs, four may wait."""
    with LLM(smollm2_path, threads=1, max_model_len=256, max_num_seqs=1, max_waiting=4) as llm:
        yield llm


def test_a_full_queue(small: LLM) -> None:
    """Twenty at once: one runs, four wait, the others are told when to come again; what is left free is used again."""
    params = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)

    async def main() -> list[object]:
        engine = AsyncEngine(small)
        first = await engine.submit(TEXT, params)
        await anext(first)

        async def ask() -> object:
            return await (await engine.submit(TEXT, params)).run()

        found = await asyncio.gather(*(ask() for _ in range(19)), return_exceptions=True)
        await first.run()
        assert (await engine.submit(TEXT, params)).request_id
        return found

    found = run(main)
    refused = [each for each in found if isinstance(each, QueueFullError)]
    assert len(found) - len(refused) >= 4
    assert len(refused) >= 10
    assert "choices with" in str(refused[0])
    assert "there is no place for 1 more" in str(refused[0])


def test_closing(small: LLM) -> None:
    """Who waits is told; who comes later, too; the thread is gone."""

    async def main() -> list[object]:
        async with AsyncEngine(small) as engine:
            streams = [await engine.submit(TEXT, LONG) for _ in range(4)]
            waiting = [asyncio.create_task(stream.run()) for stream in streams]
            await asyncio.sleep(0.05)
        found = await asyncio.gather(*waiting, return_exceptions=True)
        with pytest.raises(CutawayError, match="this LLM is closed"):
            await engine.submit(TEXT)
        await engine.close()
        return found

    found = run(main)
    assert [str(error) for error in found] == ["this LLM is closed. Load the model again."] * 4


@pytest.mark.parametrize(
    "wrong",
    [{"salt": value} for value in (None, "a", 5, bytearray(b"a"), memoryview(b"a"))]
    + [{"shown_ids": value} for value in (None, 5, "a", [0], {0})],
    ids=lambda wrong: " ".join(f"{name} {type(value).__name__}" for name, value in wrong.items()),
)
def test_what_would_fail_amid_a_step_is_refused_and_neighbours_go_on(llm: LLM, wrong: dict[str, Any]) -> None:
    async def main() -> str | None:
        engine = AsyncEngine(llm)
        neighbour = await engine.submit(TEXT, PARAMS)
        with pytest.raises(InvalidRequestError, match=f"{next(iter(wrong))} is .*; it must be") as caught:
            await engine.submit("One, two,", PARAMS, **wrong)
        assert caught.value.field == next(iter(wrong))
        return (await neighbour.run()).outputs[0].finish_reason

    assert run(main) == "length"
    assert running(llm) == 0
