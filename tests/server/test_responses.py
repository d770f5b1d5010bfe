"""``/v1/responses``: by OpenAI's own client, and by hand; what is kept of a response, for whom and how long."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from cutaway import LLM, SamplingParams
from cutaway.server.http.auth import ANYBODY, client_of
from cutaway.server.openai.response_store import ResponseStore
from support.http_server import Reply, RunningServer, running, until
from support.patience import SECONDS

PATH = "/v1/responses"
QUESTION = "What is gravity?"
CHAT: list[Any] = [{"role": "user", "content": QUESTION}]


@pytest.fixture
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=SECONDS) as made:
        yield made


def typed_events(reply: Reply) -> list[dict[str, Any]]:
    """The events of a stream: each under the name that is its type, numbered from 0."""
    assert reply.headers["content-type"].startswith("text/event-stream"), reply
    *events, rest = reply.body.decode().split("\n\n")
    assert rest == ""
    found = []
    for event in events:
        name, data = event.split("\n")
        value = json.loads(data.removeprefix("data: "))
        assert name == f"event: {value['type']}"
        found.append(value)
    assert [each["sequence_number"] for each in found] == list(range(len(found)))
    return found


def test_a_response(client: openai.OpenAI, llm: LLM) -> None:
    params = SamplingParams(temperature=0.5, top_p=0.9, seed=11, max_tokens=12)
    want = llm.chat([{"role": "system", "content": "Be brief."}, *CHAT], params)[0]
    found = client.responses.create(
        model="smollm2",
        instructions="Be brief.",
        input=QUESTION,
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=12,
        metadata={"a": "b"},
        truncation="disabled",
        text={"format": {"type": "text"}},
        extra_body={"seed": 11},
    )
    assert found.output_text == want.outputs[0].text
    assert (found.status, found.object, found.model) == ("incomplete", "response", "smollm2")
    assert found.incomplete_details is not None
    assert found.incomplete_details.reason == "max_output_tokens"
    assert (found.metadata, found.temperature, found.top_p) == ({"a": "b"}, 0.5, 0.9)
    assert (found.instructions, found.max_output_tokens, found.store) == ("Be brief.", 12, True)
    assert found.usage is not None
    assert (found.usage.input_tokens, found.usage.output_tokens) == (len(want.prompt_token_ids), 12)
    assert client.responses.retrieve(found.id).to_dict() == found.to_dict()
    client.responses.delete(found.id)
    with pytest.raises(openai.NotFoundError, match="the last 1000 of an API key are kept, in 16 MiB"):
        client.responses.retrieve(found.id)


def test_a_stream(client: openai.OpenAI, server: RunningServer, llm: LLM) -> None:
    """By the SDK, which checks their order; and the events, one by one."""
    want = llm.chat(CHAT, SamplingParams(temperature=0, max_tokens=8))[0].outputs[0]
    with client.responses.stream(model="smollm2", input=QUESTION, temperature=0, max_output_tokens=8) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert "".join(deltas) == want.text
    events = typed_events(server.post(PATH, {"input": CHAT, "temperature": 0, "stream": True, "max_output_tokens": 3}))
    count = len(events) - 8
    assert 1 <= count <= 3
    assert [each["type"] for each in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * count,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    text = "".join(each["delta"] for each in events[4:-4])
    assert events[-4]["text"] == events[-3]["part"]["text"] == text
    last = events[-1]["response"]
    assert last["output"] == [events[-2]["item"]]
    assert last["output"][0]["content"][0]["text"] == text
    whole = server.post(PATH, {"input": CHAT, "temperature": 0, "max_output_tokens": 3}).json
    changing = ("id", "created_at", "output", "usage")
    assert {**whole, **dict.fromkeys(changing)} == {**last, **dict.fromkeys(changing)}
    assert whole["output"][0]["content"] == last["output"][0]["content"]
    assert events[0]["response"] == {
        **last,
        "status": "in_progress",
        "output": [],
        "usage": None,
        "incomplete_details": None,
    }


def test_one_follows_another(client: openai.OpenAI, llm: LLM) -> None:
    """The conversation is that of chats, its keys and values are still there, and instructions are not kept."""
    fields: Any = {"model": "smollm2", "temperature": 0, "max_output_tokens": 8}
    first = client.responses.create(input=[{"role": "user", "content": "Name a colour, please."}], **fields)
    second = client.responses.create(input="And another?", previous_response_id=first.id, **fields)
    conversation = [
        {"role": "user", "content": "Name a colour, please."},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "And another?"},
    ]
    want = llm.chat(conversation, SamplingParams(temperature=0, max_tokens=8))[0]
    assert second.output_text == want.outputs[0].text
    assert second.previous_response_id == first.id
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.input_tokens == len(want.prompt_token_ids)
    assert second.usage.input_tokens_details.cached_tokens > first.usage.input_tokens - 16
    items = client.responses.create(input=[*first.output, {"role": "user", "content": "Go on"}], **fields)  # type: ignore[list-item]
    assert items.status in ("completed", "incomplete"), "a response's items are items of an input"
    third = client.responses.create(
        input="A third?", previous_response_id=second.id, instructions="Be brief.", **fields
    )
    conversation += [{"role": "assistant", "content": second.output_text}, {"role": "user", "content": "A third?"}]
    system = {"role": "system", "content": "Be brief."}
    assert (
        third.output_text
        == llm.chat([system, *conversation], SamplingParams(temperature=0, max_tokens=8))[0].outputs[0].text
    )
    client.responses.delete(first.id)
    assert client.responses.create(input="x", previous_response_id=second.id, **fields).id, (
        "it has the whole conversation"
    )


def test_what_is_not_kept(server: RunningServer, client: openai.OpenAI, llm: LLM) -> None:
    unkept = client.responses.create(model="smollm2", input="x", max_output_tokens=1, store=False)
    assert unkept.store is False
    for name in (unkept.id, "resp_nothing"):
        with pytest.raises(openai.BadRequestError, match="Send the whole conversation as input") as refused:
            client.responses.create(model="smollm2", input="y", previous_response_id=name)
        assert (refused.value.param, refused.value.code) == ("previous_response_id", "previous_response_not_found")
    with running(llm, api_keys=("mine", "others")) as keyed:
        mine, others = ({"Authorization": f"Bearer {key}"} for key in ("mine", "others"))
        name = keyed.post(PATH, {"input": "x", "max_output_tokens": 1}, mine).json["id"]
        follows = {"input": "y", "max_output_tokens": 1, "previous_response_id": name}
        assert keyed.post(PATH, follows, others).error["code"] == "previous_response_not_found"
        assert keyed.get(f"{PATH}/{name}", **others).status == 404
        assert keyed.request("DELETE", f"{PATH}/{name}", headers=others).status == 404
        assert keyed.post(PATH, follows, mine).status == 200
        with keyed.connection(PATH, {"input": "x", "stream": True}):
            pass
        until(lambda: not keyed.service.works, "it has left")


def test_a_form(client: openai.OpenAI) -> None:
    """JSON by a schema, which is enforced."""
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "green"]}},
        "required": ["colour"],
        "additionalProperties": False,
    }
    form: Any = {"format": {"type": "json_schema", "name": "colour", "schema": schema, "strict": True}}
    found = client.responses.create(model="smollm2", input="Name a colour.", text=form, max_output_tokens=30)
    assert found.status == "completed"
    assert json.loads(found.output_text)["colour"] in ("red", "green")
    assert found.text is not None
    assert found.text.format is not None
    assert found.text.format.type == "json_schema"


def response(name: str, text: str = "") -> dict[str, Any]:
    return {"id": name, "text": text}


def test_the_store_forgets_what_was_used_least_lately() -> None:
    store = ResponseStore(most_responses=3)
    for name in ("a", "b", "c"):
        store.keep(ANYBODY, [], response(name))
    assert store.find(ANYBODY, "a") is not None
    store.keep(ANYBODY, [], response("d"))
    assert [name for name in "abcd" if store.find(ANYBODY, name)] == ["a", "c", "d"]
    other = client_of("other")
    assert store.find(other, "a") is None
    assert not store.forget(other, "a")
    store.keep(other, [], response("e"))
    assert store.find(ANYBODY, "d") is not None, "each has room of its own"
    assert store.forget(ANYBODY, "d")
    assert not store.forget(ANYBODY, "d")


def test_a_full_store(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is forgotten is told by its id and what is kept; a response that follows one keeps its conversation, and
    one key's fill nobody else's room.
    """
    monkeypatch.setattr(ResponseStore.__init__, "__defaults__", (2, 1 << 20))
    with running(llm, api_keys=("one", "other")) as server:

        def ask(key: str, **fields: Any) -> Reply:
            body = {"input": "Hello", "max_output_tokens": 2, "seed": 1, **fields}
            return server.post("/v1/responses", body, {"Authorization": f"Bearer {key}"})

        def found(key: str, name: str) -> int:
            return server.get(f"/v1/responses/{name}", Authorization=f"Bearer {key}").status

        others = ask("other").json["id"]
        first = ask("one").json["id"]
        second = ask("one", previous_response_id=first).json["id"]
        assert found("one", first) == 200  # and so it was used last
        third = ask("one").json["id"]
        assert [found("one", name) for name in (first, second, third, others)] == [200, 404, 200, 404]
        refused = ask("one", previous_response_id=second)
        assert (refused.status, refused.error["param"]) == (400, "previous_response_id")
        assert f"no response {second!r}, or no more: the last 2" in refused.error["message"]
        fourth = ask("one", previous_response_id=first).json
        assert found("one", third) == 404
        assert fourth["usage"]["input_tokens"] > ask("other").json["usage"]["input_tokens"]
        assert found("other", others) == 200


def test_the_stores_bytes_are_limited() -> None:
    """Counted by hand: '{"id":"x","text":"…"}' has 20 beside the text, and [] 2."""
    store = ResponseStore(most_bytes=300)
    for name in ("a", "b", "c"):
        store.keep(ANYBODY, [], response(name, "x" * 78))
    assert [name for name in "abc" if store.find(ANYBODY, name)] == ["a", "b", "c"]
    store.keep(ANYBODY, [], response("d"))
    assert [name for name in "abcd" if store.find(ANYBODY, name)] == ["b", "c", "d"]
    assert store.forget(ANYBODY, "b")
    store.keep(ANYBODY, [], response("e", "x" * 78))
    assert [name for name in "cde" if store.find(ANYBODY, name)] == ["c", "d", "e"], "what is forgotten has no size"
    store.keep(ANYBODY, [], response("f", "x" * 279))
    assert [name for name in "cdef" if store.find(ANYBODY, name)] == [], "it is larger than all of the room"
    store.keep(ANYBODY, [], response("g", "x" * 278))
    assert store.find(ANYBODY, "g") is not None


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"input": None}, "input", "input is None; it must be a text, or a list of items"),
        ({"input": []}, "input", "not empty"),
        ({"input": [5]}, "input[0]", "input[0] is 5"),
        ({"input": "\ud83d"}, "input", "lone surrogate"),
        ({"input": [{"role": "boss", "content": "x"}]}, "input[0].role", "'boss'"),
        ({"input": [{"role": "user"}]}, "input[0].content", "a text or a list of parts"),
        ({"input": [{"role": "user", "content": "x", "name": "y"}]}, "input[0].name", "left out of an item"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]},
            "input[0].content[0].type",
            "this model reads text alone",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": 5}]}]},
            "input[0].content[0].text",
            "a text",
        ),
        (
            {"input": [{"role": "user", "content": "a\udcf0"}], "instructions": "x"},
            "input[0].content",
            "lone surrogate",
        ),
        ({"instructions": "a\udcf0"}, "instructions", "lone surrogate"),
        ({"instructions": 5}, "instructions", "a valid string"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type", "previous_response_id"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type", "one of message"),
        (
            {
                "input": [
                    {"role": "user", "content": "x"},
                    {"type": "function_call_output", "call_id": "1", "output": "y"},
                ]
            },
            "input[1].call_id",
            "the id of a call",
        ),
        (
            {"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{"}]},
            "input[0].arguments",
            "an object as JSON text",
        ),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id", "a text"),
        ({"input": [{"type": "function_call", "call_id": "1", "arguments": "{}"}]}, "input[0].name", "a text"),
        ({"input": [{"type": "reasoning", "content": "x"}]}, "input[0].content", "a list of parts"),
        ({"max_output_tokens": 0}, "max_output_tokens", "at least 1"),
        ({"max_output_tokens": 100_000}, "max_output_tokens", "maximum context length is 1024"),
        ({"temperature": 2.5}, "temperature", "from 0 to 2"),
        ({"top_p": 0}, "top_p", "above 0"),
        ({"truncation": "auto"}, "truncation", "it must be null or 'disabled'"),
        ({"background": True}, "background", "Nothing runs in the background"),
        ({"include": ["message.output_text.logprobs"]}, "include", "Leave it out"),
        ({"conversation": "conv_1"}, "conversation", "Use previous_response_id"),
        ({"reasoning": {"effort": "high"}}, "reasoning", "chat_template_kwargs"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type", "text, json_object or json_schema"),
        ({"text": {"format": "json"}}, "text.format", "an object"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema", "a JSON schema"),
        (
            {"text": {"format": {"type": "json_schema", "schema": {"type": 5}}}},
            "text.format.schema.type",
            "type is 5",
        ),
        ({"text": {"format": {"type": "text", "schema": {}}}}, "text.format.schema", "Leave it out"),
        ({"text": {"verbosity": "low"}}, "text.verbosity", "Ask for it in the instructions"),
        ({"text": {"zzz": 1}}, "text.zzz", "left out"),
        ({"text": "x"}, "text", "an object"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "run at their makers"),
        ({"tools": [{"type": "function", "name": "a b", "parameters": {}}]}, "tools[0].name", "'a b'"),
        ({"tools": [{"type": "function", "name": "f", "parameters": 5}]}, "tools[0].parameters", "a JSON schema"),
        ({"tools": [{"type": "function", "name": "f", "zzz": 5}]}, "tools[0].zzz", "not supported"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice.name", "the name of a tool"),
        ({"metadata": {"a": 1}}, "metadata.a", "a valid string"),
        ({"store": "no"}, "store", "boolean"),
        ({"max_tokens": 5}, "max_tokens", "Use max_output_tokens"),
        ({"messages": []}, "messages", "Use input"),
        ({"temprature": 1}, "temprature", "Did you mean temperature?"),
    ],
    ids=lambda value: None if isinstance(value, dict) else str(value)[:24],
)
def test_what_is_refused(server: RunningServer, fields: dict[str, Any], param: str, words: str) -> None:
    """The same whether it would be streamed: nothing is begun."""
    for stream in (False, True):
        reply = server.post(PATH, {"input": "x", "stream": stream, **fields})
        assert (reply.status, reply.error["param"]) == (400, param), reply.error
        assert words in reply.error["message"]


def test_an_error_within_a_stream(llm: LLM) -> None:
    """The last event, with the next number, and OpenAI's client raises it."""
    with running(llm, grace=0) as server, server.connection(PATH, {"input": "x", "stream": True}) as connected:
        until(lambda: bool(server.service.works), "it is there")
        server.service.abort_all()
        data = b""
        while more := connected.recv(65536):
            data += more
            if b"event: error" in data and data.endswith(b"\r\n0\r\n\r\n"):
                break
    event = data.split(b"event: error\n")[1]
    assert b'"code":"shutdown"' in event
    assert b'"sequence_number":' in event
    assert b"response.completed" not in data
