"""A real model that is trained to call tools: Qwen2.5-Coder, whose calls lack their markers now and then."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cutaway import LLM
from support.http_server import RunningServer, running
from support.model_files import require_model

MODEL = "qwen2.5-coder-0.5b-instruct"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The city"}},
            "required": ["city"],
        },
    },
}
MESSAGES = [{"role": "user", "content": "What is the weather in Paris? Use the tool."}]


@pytest.fixture(scope="module")
def qwen() -> Iterator[RunningServer]:
    with LLM(require_model(MODEL), threads=2, max_model_len=1024) as llm, running(llm) as server:
        yield server


def test_a_call_and_its_result(qwen: RunningServer) -> None:
    fields: dict[str, Any] = {"tools": [TOOL], "temperature": 0, "max_tokens": 80}
    choice = qwen.chat(**fields, messages=MESSAGES).json["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}
    chunks = qwen.chat(**fields, messages=MESSAGES, stream=True).events[:-1]
    deltas = [each["choices"][0]["delta"].get("tool_calls", [{"function": {"arguments": ""}}])[0] for each in chunks]
    assert "".join(each["function"]["arguments"] for each in deltas) == call["function"]["arguments"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": '{"temperature": "21 °C", "sky": "cloudy"}'}
    fields["tool_choice"] = "none"  # so small a model would call it again
    answer = qwen.chat(**fields, messages=[*MESSAGES, choice["message"], result]).json["choices"][0]
    assert answer["finish_reason"] == "stop"
    assert "21" in answer["message"]["content"]
