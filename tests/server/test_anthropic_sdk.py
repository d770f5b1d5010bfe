"""Anthropic's own client against the server, unmodified: what it sends is taken, what it reads is there."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from cutaway import LLM, SamplingParams
from support.http_server import RunningServer, running
from support.patience import SECONDS

MESSAGES: Any = [{"role": "user", "content": "What is gravity?"}]
SYSTEM = "Answer in one sentence."


@pytest.fixture
def client(server: RunningServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=SECONDS) as made:
        yield made


def wanted(llm: LLM, **params: Any) -> Any:
    """What the same conversation gives from Python."""
    conversation = [{"role": "system", "content": SYSTEM}, *MESSAGES]
    return llm.chat(conversation, SamplingParams(**params))[0]


def test_a_message(client: anthropic.Anthropic, llm: LLM) -> None:
    want = wanted(llm, temperature=0.5, top_k=40, top_p=0.9, seed=11, max_tokens=12)
    found = client.messages.create(
        model="smollm2",
        max_tokens=12,
        system=SYSTEM,
        messages=[{"role": "user", "content": [{"type": "text", "text": "What is gravity?"}]}],
        metadata={"user_id": "somebody"},
        extra_body={"temperature": 0.5, "top_k": 40, "top_p": 0.9, "seed": 11},
        extra_headers={"anthropic-beta": "something-2025-01-01"},
    )
    (block,) = found.content
    assert (block.type, block.text) == ("text", want.outputs[0].text)  # type: ignore[union-attr]
    assert (found.type, found.role, found.model, found.stop_reason) == ("message", "assistant", "smollm2", "max_tokens")
    assert found.usage.output_tokens == 12
    assert found.usage.input_tokens + (found.usage.cache_read_input_tokens or 0) == len(want.prompt_token_ids)
    assert found._request_id is not None
    assert found.id == f"msg_{found._request_id}"
    again = client.messages.create(model="smollm2", max_tokens=1, system=SYSTEM, messages=MESSAGES)
    assert (again.usage.cache_read_input_tokens or 0) > 0, "the prompt is the same"


def test_a_stream(client: anthropic.Anthropic, llm: LLM) -> None:
    """By the SDK's own accumulator, up to a stop sequence."""
    want = wanted(llm, temperature=0, max_tokens=100, stop=["."])
    fields: Any = {"model": "smollm2", "max_tokens": 100, "system": SYSTEM, "messages": MESSAGES}
    fields["extra_body"] = {"temperature": 0}  # its newest versions have no argument for it
    with client.messages.stream(**fields, stop_sequences=["."]) as stream:
        text = "".join(stream.text_stream)
        found = stream.get_final_message()
    assert text == want.outputs[0].text
    assert found.content[0].text == text  # type: ignore[union-attr]
    assert (found.stop_reason, found.stop_sequence) == ("stop_sequence", ".")
    assert found.usage.output_tokens == len(want.outputs[0].token_ids)
    whole = client.messages.create(**fields, stop_sequences=["."])
    assert [each.to_dict() for each in whole.content] == [{"type": "text", "text": text}]
    assert (whole.stop_reason, whole.stop_sequence) == ("stop_sequence", ".")
    events = [each.type for each in client.messages.create(**{**fields, "max_tokens": 2}, stream=True)]
    deltas = ["content_block_delta"] * (len(events) - 5)
    assert 1 <= len(deltas) <= 2
    first = ["message_start", "content_block_start"]
    assert events == [*first, *deltas, "content_block_stop", "message_delta", "message_stop"]


def test_a_form(client: anthropic.Anthropic) -> None:
    """JSON by a schema, which is enforced."""
    schema = {"type": "object", "properties": {"colour": {"enum": ["red", "green"]}}, "required": ["colour"]}
    form: Any = {"format": {"type": "json_schema", "schema": {**schema, "additionalProperties": False}}}
    found = client.messages.create(
        model="smollm2", max_tokens=30, messages=MESSAGES, extra_body={"output_config": form}
    )
    assert json.loads(found.content[0].text)["colour"] in ("red", "green")  # type: ignore[union-attr]


def test_counted(client: anthropic.Anthropic, llm: LLM) -> None:
    found = client.messages.count_tokens(model="smollm2", system=SYSTEM, messages=MESSAGES)
    assert found.input_tokens == len(wanted(llm, max_tokens=1).prompt_token_ids)


def test_errors_have_their_classes(client: anthropic.Anthropic) -> None:
    with pytest.raises(
        anthropic.BadRequestError, match=r"temperature is 5; it must be a number from 0 to 1"
    ) as refused:
        client.messages.create(model="smollm2", max_tokens=1, messages=MESSAGES, extra_body={"temperature": 5})
    assert refused.value.body == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": refused.value.body["error"]["message"]},  # type: ignore[index]
    }
    with pytest.raises(anthropic.NotFoundError, match="here is 'smollm2'"):
        client.messages.create(model="claude-opus-4", max_tokens=1, messages=MESSAGES)
    image: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]\.content\[0\]\.type is 'image'.*text alone"):
        client.messages.create(model="smollm2", max_tokens=1, messages=[{"role": "user", "content": [image]}])


def test_keys(llm: LLM) -> None:
    """It sends them as X-Api-Key."""
    with running(llm, api_keys=("good",), served_names=("smollm2",)) as server:
        with anthropic.Anthropic(base_url=server.url, api_key="good", max_retries=0) as client:
            assert client.messages.count_tokens(model="smollm2", messages=MESSAGES).input_tokens > 0
        with (
            anthropic.Anthropic(base_url=server.url, api_key="bad", max_retries=0) as client,
            pytest.raises(anthropic.AuthenticationError) as refused,
        ):
            client.messages.count_tokens(model="smollm2", messages=MESSAGES)
        assert refused.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
