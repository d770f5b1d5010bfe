"""A list or an object at each place of a body where something else is wanted: taken or refused, never a failure.

Names of kinds and roles are looked up in tables, where a list or an object can't even be asked for.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from support.http_server import RunningServer

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
BODIES: list[tuple[str, dict[str, Any]]] = [
    (
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "x"}]},
                {"role": "assistant", "content": "", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "x"},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
            "max_tokens": 1,
        },
    ),
    (
        "/v1/responses",
        {
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "x"}]},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "x"},
            ],
            "tools": [{"type": "function", "name": "f", "description": "d", "parameters": SCHEMA}],
            "tool_choice": {"type": "function", "name": "f"},
            "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}, "verbosity": "medium"},
            "previous_response_id": "resp_x",
            "max_output_tokens": 1,
        },
    ),
    (
        "/v1/messages",
        {
            "system": [{"type": "text", "text": "x"}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "x"}]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "x", "signature": ""},
                        {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "x"}]},
                    ],
                },
            ],
            "tools": [{"type": "custom", "name": "f", "description": "d", "input_schema": SCHEMA}],
            "tool_choice": {"type": "tool", "name": "f"},
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
            "max_tokens": 1,
        },
    ),
]
Path = tuple[str | int, ...]


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Of all that is within a value."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(each, (*path, key))


def changed(body: Any, path: Path, value: Any) -> Any:
    """A copy with another value at a place."""
    body = holder = copy.deepcopy(body)
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return body


@pytest.mark.parametrize(("path", "body"), BODIES, ids=[path for path, _ in BODIES])
def test_each_place_with_another_kind(server: RunningServer, path: str, body: dict[str, Any]) -> None:
    found = list(places(body))
    assert len(found) > 40
    for place in found:
        for value in ([], {}, [[]], [{}], {"a": []}):
            reply = server.post(path, changed(body, place, value))
            assert reply.status in (200, 400, 404), (place, value, reply)
