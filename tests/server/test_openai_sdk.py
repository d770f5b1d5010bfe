"""OpenAI's own client against the server, unmodified: what it sends is taken, what it reads is there."""

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from cutaway import LLM, SamplingParams
from support.http_server import RunningServer, running
from support.patience import SECONDS

MESSAGES: Any = [{"role": "user", "content": "What is gravity?"}]


@pytest.fixture
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=SECONDS) as made:
        yield made


def test_models(client: openai.OpenAI) -> None:
    assert [each.id for each in client.models.list()] == ["smollm2", "another-name"]
    assert client.models.retrieve("smollm2").owned_by == "cutaway"


def test_a_chat(client: openai.OpenAI, llm: LLM) -> None:
    params = SamplingParams(temperature=0.5, seed=11, max_tokens=20, logprobs=2, stop=["zzz"])
    want = llm.chat(MESSAGES, params)[0].outputs[0]
    found = client.chat.completions.create(
        model="smollm2",
        messages=MESSAGES,
        temperature=0.5,
        seed=11,
        max_completion_tokens=20,
        logprobs=True,
        top_logprobs=2,
        stop="zzz",
        user="somebody",
        extra_body={"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "min_tokens": 0},
    )
    assert found.choices[0].message.content == want.text
    assert found.choices[0].finish_reason == want.finish_reason
    assert found.usage is not None
    assert found.usage.completion_tokens == len(want.token_ids)
    assert found.usage.prompt_tokens_details is not None
    assert found.choices[0].logprobs is not None
    assert found.choices[0].logprobs.content is not None
    assert len(found.choices[0].logprobs.content) == len(want.token_ids)
    assert found._request_id is not None
    assert found.id.endswith(found._request_id)


def test_a_streamed_chat(client: openai.OpenAI, llm: LLM) -> None:
    """By the SDK's own accumulator."""
    want = llm.chat(MESSAGES, SamplingParams(temperature=0.5, seed=11, max_tokens=200, n=2, stop=["."]))[0].outputs
    with client.chat.completions.stream(
        model="smollm2",
        messages=MESSAGES,
        temperature=0.5,
        seed=11,
        max_tokens=200,
        n=2,
        stop=["."],  # the SDK raises for an answer that is cut
        stream_options={"include_usage": True},
    ) as stream:
        found = stream.get_final_completion()
    assert [each.message.content for each in found.choices] == [each.text for each in want]
    assert [each.finish_reason for each in found.choices] == [each.finish_reason for each in want]
    assert found.usage is not None
    assert found.usage.completion_tokens == sum(len(each.token_ids) for each in want)


def test_completions(client: openai.OpenAI, llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=8)
    want = llm.generate("The sea is", params)[0].outputs[0].text
    fields: Any = {"model": "smollm2", "prompt": "The sea is", "temperature": 0, "max_tokens": 8}
    assert client.completions.create(**fields).choices[0].text == want
    assert "".join(each.choices[0].text for each in client.completions.create(**fields, stream=True)) == want
    ids = llm.tokenizer.encode("The sea is")
    echoed = client.completions.create(**{**fields, "prompt": [ids]}, echo=True, logprobs=1)
    assert echoed.choices[0].text == "The sea is" + want
    assert echoed.choices[0].logprobs is not None
    assert echoed.choices[0].logprobs.token_logprobs is not None
    assert len(echoed.choices[0].logprobs.token_logprobs) == len(ids) + 8


def test_errors_have_their_classes(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="smollm2", messages=MESSAGES, temperature=5)
    assert refused.value.param == "temperature"
    assert refused.value.code == "invalid_value"
    assert refused.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt-4o", messages=MESSAGES)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="this model's chat template has no place for any"):
        client.chat.completions.create(
            model="smollm2", messages=MESSAGES, tools=[{"type": "function", "function": {"name": "f"}}]
        )


def test_many_at_once(server: RunningServer, llm: LLM) -> None:
    """Twelve streams side by side, by the asynchronous client: each is what it would be alone."""
    params = SamplingParams(temperature=0.9, seed=2, max_tokens=8)
    prompts = [f"{number} and {number} make" for number in range(12)]
    want = [llm.generate(prompt, params)[0].outputs[0].text for prompt in prompts]

    async def ask(client: openai.AsyncOpenAI, prompt: str) -> str:
        fields: Any = {"model": "smollm2", "temperature": 0.9, "seed": 2, "max_tokens": 8}
        stream = await client.completions.create(prompt=prompt, stream=True, **fields)
        return "".join([chunk.choices[0].text async for chunk in stream])

    async def main() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(ask(client, prompt) for prompt in prompts))

    assert asyncio.run(main()) == want


def test_keys(llm: LLM) -> None:
    with running(llm, api_keys=("good",)) as server:
        for key, opens in (("good", True), ("bad", False)):
            with openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0) as client:
                if opens:
                    assert len(client.models.list().data) == 1
                    continue
                with pytest.raises(openai.AuthenticationError) as refused:
                    client.models.list()
                assert refused.value.code == "invalid_api_key"
