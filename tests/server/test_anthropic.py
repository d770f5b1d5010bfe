"""Anthropic's ``/v1/messages``: what is refused, and by what name; conversations as templates get them."""

import json
from typing import Any

import pytest

from cutaway import LLM
from cutaway.server.anthropic.messages import read_conversation
from support.http_server import RunningServer, running, until

PATH, COUNT = "/v1/messages", "/v1/messages/count_tokens"
USER: list[Any] = [{"role": "user", "content": "x"}]


def said(*blocks: Any, role: str = "user") -> list[Any]:
    return [{"role": role, "content": list(blocks)}]


CALL: dict[str, Any] = {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}


@pytest.mark.parametrize(
    ("fields", "place", "words"),
    [
        ({"max_tokens": None}, "max_tokens", "max_tokens is None; it must be an integer of at least 1"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"max_tokens": "5"}, "max_tokens", "'5'"),
        ({"temperature": 1.5}, "temperature", "from 0 to 1"),
        ({"top_p": 0}, "top_p", "above 0"),
        ({"top_k": -2}, "top_k", "at least -1"),
        ({"stop_sequences": "x"}, "stop_sequences", "a list of texts"),
        ({"stop_sequences": [""]}, "stop_sequences", "none of them empty"),
        ({"stream": "yes"}, "stream", "boolean"),
        ({"messages": []}, "messages", "at least 1 item"),
        ({"messages": ["x"]}, "messages[0]", "an object with role and content"),
        (
            {"messages": [{"role": "system", "content": "x"}]},
            "messages[0].role",
            "the system's text is the field system",
        ),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "a text or a list of blocks"),
        ({"messages": [{"role": "user", "content": "x", "name": "y"}]}, "messages[0].name", "left out"),
        ({"messages": [*USER, {"role": "user", "content": "\ud83d"}]}, "messages[1].content", "lone surrogate"),
        ({"messages": said("x")}, "messages[0].content[0]", "an object with type"),
        ({"messages": said({"type": "text"})}, "messages[0].content[0].text", "a text"),
        ({"messages": said({"type": "text", "text": "x", "z": 1})}, "messages[0].content[0].z", "left out of a block"),
        ({"messages": said({"type": "image", "source": {}})}, "messages[0].content[0].type", "reads text alone"),
        ({"messages": said({"type": "document"})}, "messages[0].content[0].type", "reads text alone"),
        ({"messages": said(CALL)}, "messages[0].content[0].type", "'tool_use'"),
        (
            {"messages": said({"type": "tool_result", "tool_use_id": "1", "content": "x"})},
            "messages[0].content[0].tool_use_id",
            "the id of a tool_use block",
        ),
        ({"messages": said({**CALL, "input": "{}"}, role="assistant")}, "messages[0].content[0].input", "an object"),
        ({"messages": said(CALL, CALL, role="assistant")}, "messages[0].content[1].id", "no other call has"),
        (
            {"messages": said({**CALL, "name": 5}, role="assistant")},
            "messages[0].content[0].name",
            "the name of a tool",
        ),
        ({"system": 5}, "system", "a text or a list of blocks"),
        ({"system": [{"type": "image"}]}, "system[0].type", "'text'"),
        ({"system": "\udcf0"}, "system", "lone surrogate"),
        ({"tools": {}}, "tools", "a list of tools"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema", "missing"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name", "'a b'"),
        ({"tools": [{"name": "f", "input_schema": {"type": "string"}}]}, "tools[0].input_schema.type", "'object'"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type", "run at their maker's"),
        ({"tools": [{"name": "f", "input_schema": {}, "zzz": 1}]}, "tools[0].zzz", "not supported"),
        ({"tools": [{"name": "f", "input_schema": {}}]}, "tools", "has no place for any"),
        ({"tool_choice": "auto"}, "tool_choice", "an object"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type", "one of auto, any, tool, none"),
        ({"tool_choice": {"type": "any"}}, "tool_choice.type", "send tools"),
        ({"tool_choice": {"type": "auto", "name": "f"}}, "tool_choice.name", "left out"),
        ({"thinking": {"type": "on"}}, "thinking.type", "one of enabled, adaptive, disabled"),
        ({"thinking": True}, "thinking", "one of enabled"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens", "at least 1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "thinking.type", "does not think"),
        ({"stop": ["x"]}, "stop", "Use stop_sequences"),
        ({"output_config": {"format": {}}}, "output_config.format", "json_schema"),
        ({"output_config": {"effort": "low"}}, "output_config.effort", "not supported"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema", "a JSON schema"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": 5}}}},
            "output_config.format.schema",
            "schema",
        ),
        ({"output_format": {"type": "json_schema"}}, "output_format", "Use output_config.format"),
        ({"mcp_servers": [{}]}, "mcp_servers", "No other server"),
        ({"temprature": 1}, "temprature", "Did you mean temperature?"),
    ],
    ids=lambda value: None if isinstance(value, dict) else str(value)[:24],
)
def test_what_is_refused(server: RunningServer, fields: dict[str, Any], place: str, words: str) -> None:
    """In Anthropic's shape, the place named in the message; the same whether it would be streamed."""
    for stream in (False, True):
        reply = server.post(PATH, {"max_tokens": 4, "messages": USER, "stream": stream, **fields})
        assert reply.status == 400, reply
        assert set(reply.json) == {"type", "error"}
        assert reply.json["type"] == "error"
        assert reply.json["error"]["type"] == "invalid_request_error"
        message = reply.json["error"]["message"]
        assert place in message, message
        assert words in message, message


def test_errors_of_all_kinds(server: RunningServer) -> None:
    """Also those of the layers before the route, and of other methods and paths."""
    found = [
        server.post(PATH, b"{"),
        server.post(PATH, b"{}", {"Content-Type": "text/plain"}),
        server.post(PATH, {"model": "claude", "max_tokens": 1, "messages": USER}),
        server.get(PATH),
        server.post(f"{PATH}/batches", {}),
        server.post(PATH, {}),
    ]
    assert [each.status for each in found] == [400, 415, 404, 405, 404, 400]
    for each in found:
        assert (each.json["type"], set(each.json["error"])) == ("error", {"type", "message"})
    kinds = [each.json["error"]["type"] for each in found]
    assert kinds[2] == kinds[4] == "not_found_error"
    assert "max_tokens is missing" in found[5].json["error"]["message"] or "messages is missing" in str(found[5].body)
    assert set(server.post("/v1/messagesx", {}).json) == {"error"}, "no path of Anthropic's"


def test_layers_before_the_route(llm: LLM) -> None:
    with running(llm, api_keys=("k",), max_body_size=100) as server:
        without = server.post(PATH, {"messages": USER})
        assert (without.status, without.json["error"]["type"]) == (401, "authentication_error")
        large = server.post(PATH, {"messages": USER, "x": "y" * 100}, {"X-Api-Key": "k"})
        assert (large.status, large.json["error"]["type"]) == (413, "request_too_large")


def test_the_context_ends_an_answer(llm: LLM, server: RunningServer) -> None:
    """Clients must say max_tokens and often say much: the context may come before, and the reason says so."""

    def said(count: int) -> list[Any]:
        return [*USER, {"role": "assistant", "content": "word" + " word" * count}]

    count = len(llm.tokenizer.encode_chat(said(900), continue_final_message=True))
    conversation = said(900 + 1020 - count)
    reply = server.post(PATH, {"max_tokens": 30_000, "temperature": 0, "messages": conversation})
    assert reply.status == 200
    used = reply.json["usage"]
    prompt = used["input_tokens"] + used["cache_read_input_tokens"]
    assert reply.json["stop_reason"] == "model_context_window_exceeded"
    assert prompt + used["output_tokens"] == 1024
    full = server.post(PATH, {"max_tokens": 1, "messages": [{"role": "user", "content": "word " * 1100}]})
    assert full.status == 400
    assert "maximum context length is 1024" in full.json["error"]["message"]


def test_a_prefilled_answer_goes_on(server: RunningServer, llm: LLM) -> None:
    conversation = [{"role": "user", "content": "Say: one two three"}, {"role": "assistant", "content": "one two"}]
    count = server.post(COUNT, {"messages": conversation}).json["input_tokens"]
    assert count == len(llm.tokenizer.encode_chat(conversation, continue_final_message=True))


def test_an_error_within_a_stream(llm: LLM) -> None:
    with (
        running(llm) as server,
        server.connection(PATH, {"max_tokens": 900, "messages": USER, "stream": True}) as connected,
    ):
        until(lambda: bool(server.service.works), "it is there")
        server.service.abort_all()
        data = b""
        while not data.endswith(b"\r\n0\r\n\r\n"):
            data += connected.recv(65536)
    event = data.split(b"event: error\ndata: ")[1].split(b"\n")[0]
    assert json.loads(event)["type"] == "error"
    assert json.loads(event)["error"]["type"] == "overloaded_error"
    assert b"message_stop" not in data


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (PATH, {"max_tokens": 900, "messages": USER}),
        (PATH, {"max_tokens": 900, "messages": USER, "stream": True}),
        ("/v1/responses", {"input": "x"}),
        ("/v1/responses", {"input": "x", "stream": True}),
    ],
)
def test_a_client_that_leaves(server: RunningServer, path: str, body: dict[str, Any]) -> None:
    """Its work ends within a step or two."""
    with server.connection(path, body):
        until(lambda: bool(server.service.works), "it is there")
    until(lambda: not server.service.works, "it has left")


def test_conversations() -> None:
    """Neighbours of one role are one turn; calls and results have the places that templates have for them."""
    found = read_conversation(
        [{"type": "text", "text": "A", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "B"}],
        [
            {"role": "user", "content": "1"},
            {"role": "user", "content": [{"type": "text", "text": "2"}, {"type": "text", "text": "3"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "redacted_thinking", "data": "…"},
                    {"type": "text", "text": "4"},
                    CALL,
                    {**CALL, "id": "2"},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "2", "content": "r", "is_error": True},
                    {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "s"}]},
                    {"type": "text", "text": "5"},
                ],
            },
            {"role": "assistant", "content": "6"},
            {"role": "assistant", "content": "7"},
        ],
    )

    def call(name: str) -> dict[str, Any]:
        return {"id": name, "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}

    assert found.messages == [
        {"role": "system", "content": "A\nB"},
        {"role": "user", "content": "1\n2\n3"},
        {"role": "assistant", "content": "4", "reasoning_content": "hm", "tool_calls": [call("1"), call("2")]},
        {"role": "tool", "tool_call_id": "2", "name": "f", "content": "Error: r"},
        {"role": "tool", "tool_call_id": "1", "name": "f", "content": "s"},
        {"role": "user", "content": "5"},
        {"role": "assistant", "content": "6\n7"},
    ]
    assert found.places[:2] == ["system", "messages[0].content"]
    assert read_conversation(None, USER).messages == USER
    assert read_conversation("", USER).messages == USER


def test_a_host_that_is_refused(server: RunningServer) -> None:
    """403 has a kind of its own there."""
    refused = server.post(PATH, {"max_tokens": 1, "messages": USER}, {"Host": "evil.example"})
    assert (refused.status, refused.json["error"]["type"]) == (403, "permission_error")
