"""Tools and thoughts by the clients of the other two protocols, whole and streamed. The model is a script."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from support.http_server import RunningServer, running
from support.patience import SECONDS
from support.scripted_model import ScriptedModel, scripted_model, template

ARGUMENTS = '{"city": "Zürich", "days": 2}'
CALLS = (
    '<tool_call>\n{"name": "get_weather", "arguments": ' + ARGUMENTS + "}\n</tool_call>\n"
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
)
ANSWER = "<think>The user wants weather.</think>Let me see.\n" + CALLS
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
QUESTION: Any = [{"role": "user", "content": "The weather?"}]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, ScriptedModel]]:
    folder = tmp_path_factory.mktemp("scripted")
    with (
        scripted_model(folder, template("hermes", reasons=True)) as model,
        running(model.llm, served_names=("scripted",)) as server,
    ):
        yield server, model


def test_anthropics_client(place: tuple[RunningServer, ScriptedModel]) -> None:
    """Whole, and put together from a stream by the SDK: thinking, text, two calls. Then what the tools gave."""
    server, model = place
    fields: Any = {
        "model": "scripted",
        "max_tokens": 1000,
        "messages": QUESTION,
        "tools": [
            {"name": "get_weather", "description": "The weather of a city.", "input_schema": SCHEMA},
            {"type": "custom", "name": "now", "input_schema": {"type": "object"}},
        ],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=SECONDS) as client:
        model.say(ANSWER)
        whole = client.messages.create(**fields)
        model.say(ANSWER)
        with client.messages.stream(**fields) as stream:
            streamed = stream.get_final_message()
        assert whole.stop_reason == streamed.stop_reason == "tool_use"
        for found in (whole, streamed):
            assert [each.type for each in found.content] == ["thinking", "text", "tool_use", "tool_use"]
            thinking, text, first, second = (each.to_dict() for each in found.content)
            assert (thinking["thinking"], str(text["text"]).strip()) == ("The user wants weather.", "Let me see.")
            assert (first["name"], first["input"]) == ("get_weather", json.loads(ARGUMENTS))
            assert (second["name"], second["input"]) == ("now", {})
            assert first["id"] != second["id"]
        content: Any = [each.to_dict() for each in whole.content]
        results: Any = [
            {"type": "tool_result", "tool_use_id": each["id"], "content": f"result of {each['name']}"}
            for each in content[2:]
        ]
        model.say("Sunny.")
        fields["messages"] = [
            *QUESTION,
            {"role": "assistant", "content": content},
            {"role": "user", "content": results},
        ]
        after = client.messages.create(**fields)
        assert (after.stop_reason, after.content[0].to_dict()["text"]) == ("end_turn", "Sunny.")
        model.say(ANSWER[:-40], ends=True)
        cut = client.messages.create(**{**fields, "max_tokens": 80})
        assert cut.stop_reason == "max_tokens"
        model.say(ANSWER)
        without = client.messages.create(**{**fields, "messages": QUESTION, "tool_choice": {"type": "none"}})
        assert without.stop_reason == "end_turn"
        assert "<tool_call>" in without.content[1].to_dict()["text"]
        model.say(ANSWER)
        alone: Any = {"type": "auto", "disable_parallel_tool_use": True}
        one = client.messages.create(**{**fields, "messages": QUESTION, "tool_choice": alone})
        assert [each.type for each in one.content].count("tool_use") == 1


def test_openais_responses(place: tuple[RunningServer, ScriptedModel]) -> None:
    """Whole and streamed: reasoning, message, two calls. What they gave follows by the response's id."""
    server, model = place
    fields: Any = {
        "model": "scripted",
        "input": "The weather?",
        "tools": [
            {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": False},
            {"type": "function", "name": "now", "parameters": {}, "strict": False},
        ],
    }
    kinds = ["reasoning", "message", "function_call", "function_call"]
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=SECONDS) as client:
        model.say(ANSWER)
        whole = client.responses.create(**fields)
        model.say(ANSWER)
        with client.responses.stream(**fields) as stream:
            events = [event.type for event in stream]
            streamed = stream.get_final_response()
        for name in ("reasoning_text", "output_text", "function_call_arguments"):
            assert f"response.{name}.delta" in events
            assert events.count(f"response.{name}.done") == (2 if name == "function_call_arguments" else 1)
        for found in (whole, streamed):
            assert (found.status, [each.type for each in found.output]) == ("completed", kinds)
            reasoning, message, first, second = (each.to_dict() for each in found.output)
            assert reasoning["content"] == [{"type": "reasoning_text", "text": "The user wants weather."}]
            assert message["content"][0]["text"].strip() == "Let me see."  # type: ignore[index]
            assert (first["name"], json.loads(str(first["arguments"]))) == ("get_weather", json.loads(ARGUMENTS))
            assert (second["name"], second["arguments"]) == ("now", "{}")
            assert found.usage is not None
            assert 0 < found.usage.output_tokens_details.reasoning_tokens < found.usage.output_tokens
        outputs: Any = [
            {"type": "function_call_output", "call_id": each.call_id, "output": "sunny"}
            for each in whole.output
            if each.type == "function_call"
        ]
        model.say("Sunny.")
        after = client.responses.create(**{**fields, "input": outputs}, previous_response_id=whole.id)
        assert after.output_text == "Sunny."
        assert after.usage is not None
        assert after.usage.input_tokens_details.cached_tokens > 0
        model.say("Sunny.")
        stateless = client.responses.create(**{**fields, "input": [*QUESTION, *whole.output, *outputs]}, store=False)
        assert stateless.usage is not None
        assert stateless.usage.input_tokens == after.usage.input_tokens, "the same conversation"


def test_demanded_calls(place: tuple[RunningServer, ScriptedModel]) -> None:
    """The model would say something else, and must call; what can't be demanded is told by the field's own name."""
    server, model = place
    weather: dict[str, Any] = {"name": "get_weather", "input_schema": SCHEMA}
    body: dict[str, Any] = {"max_tokens": 200, "messages": QUESTION, "tools": [weather]}
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        model.say("<think>hm</think>" + CALLS.partition("\n<tool_call>")[0])
        reply = server.post("/v1/messages", {**body, "tool_choice": choice}).json
        assert reply["stop_reason"] == "tool_use", reply
        assert reply["content"][-1]["name"] == "get_weather"
    bad = {"type": "object", "properties": {"x": {"type": 5}}}
    refused = server.post("/v1/messages", {**body, "tools": [{**weather, "input_schema": bad}], "tool_choice": choice})
    assert "tools[0].input_schema" in refused.json["error"]["message"]
    flat: dict[str, Any] = {"type": "function", "name": "get_weather", "parameters": SCHEMA}
    asked: dict[str, Any] = {"input": "The weather?", "tools": [flat], "max_output_tokens": 200}
    for demanded in ("required", {"type": "function", "name": "get_weather"}):
        model.say("<think>hm</think>" + CALLS.partition("\n<tool_call>")[0])
        response = server.post("/v1/responses", {**asked, "tool_choice": demanded}).json
        assert response["output"][-1]["type"] == "function_call", response
        assert response["tool_choice"] == demanded
    again = server.post("/v1/responses", {**asked, "tools": [{**flat, "parameters": bad}], "tool_choice": "required"})
    assert again.error["param"].startswith("tools[0].parameters")


def test_a_spoilt_call_is_kept_without_its_arguments(place: tuple[RunningServer, ScriptedModel]) -> None:
    """So that what the client says of it can follow."""
    server, model = place
    tools = [{"type": "function", "name": "now", "parameters": {}}]
    model.say('<tool_call>\n{"name": "now", "arguments": {"a": }}\n</tool_call>')
    first = server.post("/v1/responses", {"input": "x", "tools": tools, "max_output_tokens": 200}).json
    calls = [each for each in first["output"] if each["type"] == "function_call"]
    items: list[Any] = [
        {"type": "function_call_output", "call_id": each["call_id"], "output": "no JSON"} for each in calls
    ]
    model.say("Sorry.")
    body = {"input": items or "y", "tools": tools, "previous_response_id": first["id"]}
    assert server.post("/v1/responses", body).status == 200
