"""OpenAI's own client when things go wrong or on: raw replies, retries, patience, streams that are left."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from cutaway import LLM, SamplingParams
from cutaway.server.http.request_log import REQUEST_LOGGER
from support.gate import gated
from support.http_server import RunningServer, running, until
from support.patience import SECONDS, finishes

FIELDS: Any = {"model": "smollm2", "prompt": "The sea is", "temperature": 0, "max_tokens": 8}
MESSAGES: Any = [{"role": "user", "content": "What is gravity?"}]


@pytest.fixture(scope="module")
def small(smollm2_path: Path) -> Iterator[LLM]:
    """One sequence runs, one may wait."""
    with LLM(smollm2_path, threads=1, max_model_len=256, max_num_seqs=1, max_waiting=1) as llm:
        yield llm


@pytest.fixture(scope="module")
def busy(small: LLM) -> Iterator[RunningServer]:
    with running(small, served_names=("smollm2",)) as started:
        yield started


def client(server: RunningServer, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", **{"timeout": SECONDS, **options})


def test_raw_replies(server: RunningServer) -> None:
    """What a client reads from headers, and the parsed reply behind them."""
    with client(server, max_retries=0) as asking:
        raw = asking.completions.with_raw_response.create(**FIELDS)
        assert raw.status_code == 200
        assert raw.headers["content-type"] == "application/json"
        assert raw.headers["x-request-id"] == raw.request_id
        assert raw.retries_taken == 0
        parsed = raw.parse()
        assert parsed.id.endswith(str(raw.request_id))
        assert parsed.choices[0].text == asking.completions.create(**FIELDS).choices[0].text
        with asking.completions.with_streaming_response.create(**FIELDS, stream=True) as streamed:
            assert streamed.headers["content-type"].startswith("text/event-stream")
            lines = [line for line in streamed.iter_lines() if line]
        assert lines[-1] == "data: [DONE]"


def test_a_list_of_prompts(server: RunningServer, llm: LLM) -> None:
    """Of texts and of ids; with several answers to each, best_of as ever."""
    prompts = ["The sea is", "Water boils at"]
    params = SamplingParams(temperature=0.8, seed=3, max_tokens=6, n=2)
    want = [each.text for output in llm.generate(prompts, params, use_tqdm=False) for each in output.outputs]
    fields: Any = {"model": "smollm2", "temperature": 0.8, "seed": 3, "max_tokens": 6, "n": 2, "best_of": 2}
    with client(server, max_retries=0) as asking:
        for given in (prompts, [llm.tokenizer.encode(each) for each in prompts]):
            reply = asking.completions.create(prompt=given, **fields)
            assert [each.text for each in reply.choices] == want
            texts = [""] * 4
            for chunk in asking.completions.create(prompt=given, stream=True, **fields):
                for choice in chunk.choices:
                    texts[choice.index] += choice.text
            assert texts == want


def test_the_asynchronous_client(server: RunningServer, llm: LLM) -> None:
    """A chat whole, as a stream, and by the stream's own accumulator, all at the same time."""
    want = llm.chat(MESSAGES, SamplingParams(temperature=0.5, seed=11, max_tokens=20, stop=["zzz"]))[0].outputs[0]
    fields: Any = {"model": "smollm2", "messages": MESSAGES, "temperature": 0.5, "seed": 11, "max_tokens": 20}

    async def whole(asking: openai.AsyncOpenAI) -> str | None:
        reply = await asking.chat.completions.create(**fields)
        return reply.choices[0].message.content

    async def streamed(asking: openai.AsyncOpenAI) -> str | None:
        stream = await asking.chat.completions.create(**fields, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def models(asking: openai.AsyncOpenAI) -> str | None:
        names = [each.id async for each in asking.models.list()]
        return names[0]

    async def main() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as asking:
            return await asyncio.gather(whole(asking), streamed(asking), models(asking))

    assert asyncio.run(main()) == [want.text, want.text, "smollm2"]


def test_a_full_queue_is_asked_again(busy: RunningServer, small: LLM, caplog: pytest.LogCaptureFixture) -> None:
    """429 is retried by the client itself, after the time that the server names; without retries it is an error."""
    long: Any = {**FIELDS, "max_tokens": 250, "extra_body": {"ignore_eos": True}}
    errors: list[openai.RateLimitError] = []
    replies: list[Any] = []

    def refusals() -> int:
        return sum(record.fields["status"] == 429 for record in caplog.records)  # type: ignore[attr-defined]

    def be_refused() -> None:
        with pytest.raises(openai.RateLimitError) as error:
            once.completions.create(**FIELDS)
        errors.append(error.value)

    def begin(function: Callable[[], Any]) -> threading.Thread:
        thread = threading.Thread(target=function, daemon=True)
        thread.start()
        return thread

    with (
        caplog.at_level(logging.INFO, logger=REQUEST_LOGGER),
        gated(small) as gate,
        client(busy, max_retries=0) as once,
        client(busy, max_retries=50) as patient,
    ):
        threads = [begin(lambda: once.completions.create(**long))]
        until(lambda: len(busy.service.works) == 1, "the first is there")
        threads.append(begin(lambda: once.completions.create(**long)))
        gate.step_until(lambda: len(busy.service.works) == 2, "the second waits")
        threads.append(begin(be_refused))
        gate.step_until(lambda: len(errors) == 1, "one without patience is refused")
        assert errors[0].code == "queue_full"
        assert int(errors[0].response.headers["retry-after"]) >= 1
        until(lambda: refusals() == 1, "it is in the log")
        threads.append(begin(lambda: replies.append(patient.completions.with_raw_response.create(**FIELDS))))
        gate.step_until(lambda: refusals() == 2, "and one that will ask again")
        gate.open()
        for each in threads:
            finishes(each.join)
    assert replies[0].status_code == 200
    assert replies[0].retries_taken == refusals() - 1 >= 1
    assert replies[0].parse().choices[0].finish_reason == "length"


def test_a_client_without_patience(busy: RunningServer, small: LLM) -> None:
    """Its own timeout ends its request in the engine, too."""
    with gated(small) as gate, client(busy, max_retries=0, timeout=0.5) as asking:
        with pytest.raises(openai.APITimeoutError):
            asking.chat.completions.create(model="smollm2", messages=MESSAGES)
        gate.step_until(lambda: len(busy.service.works) == 0, "it is gone")
        gate.open()
    with client(busy, max_retries=0) as asking:
        assert asking.completions.create(**FIELDS).choices[0].finish_reason == "length"


def test_a_stream_that_is_left(busy: RunningServer, small: LLM) -> None:
    with client(busy, max_retries=0) as asking:
        fields: Any = {**FIELDS, "max_tokens": 200, "extra_body": {"ignore_eos": True}}
        with gated(small) as gate:
            gate.allow(5)
            stream = asking.completions.create(**fields, stream=True)
            first = next(iter(stream))
            assert first.choices[0].text
            stream.close()
            gate.step_until(lambda: len(busy.service.works) == 0, "it is gone")
            assert gate.steps < 100
            gate.open()
