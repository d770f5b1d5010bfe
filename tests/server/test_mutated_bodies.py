"""Bodies that were damaged at random: each gets an answer or a refusal, and the server goes on.

A few hundred by default; ``CUTAWAY_LONG_TESTS=1`` sends twenty thousand.
"""

import http.client
import json
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from cutaway import LLM
from support.http_server import RunningServer, running, until
from support.long import LONG
from support.patience import SECONDS
from support.scripted_model import template

COUNT = 20_000 if LONG else 400

CHAT: dict[str, Any] = {
    "model": "smollm2",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello \u00fc \U0001f600"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
        },
        {"role": "tool", "content": "3", "tool_call_id": "1"},
    ],
    "temperature": 0.5,
    "max_tokens": 2,
    "stop": ["x", "y"],
    "logit_bias": {"5": -1},
    "logprobs": True,
    "top_logprobs": 2,
    "stream": False,
    "stream_options": {"include_usage": True},
    "n": 2,
    "seed": 1,
    "chat_template_kwargs": {"a": [1, {"b": None}]},
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {}}}}}],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "user": "u",
}
COMPLETION: dict[str, Any] = {
    "prompt": ["One two", [1, 2, 3]],
    "max_tokens": 2,
    "echo": True,
    "logprobs": 1,
    "stream": True,
    "stop_token_ids": [7],
    "min_p": 0.1,
    "return_token_ids": True,
}
RESPONSE: dict[str, Any] = {
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Yes", "annotations": []}],
        },
        {"role": "user", "content": "Go on"},
    ],
    "instructions": "Be brief.",
    "max_output_tokens": 2,
    "text": {"format": {"type": "text"}},
    "metadata": {"a": "b"},
    "stream": True,
    "store": True,
}
MESSAGE: dict[str, Any] = {
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}]},
        {"role": "user", "content": [{"type": "text", "text": "Go on"}]},
    ],
    "max_tokens": 2,
    "stop_sequences": ["x"],
    "temperature": 0.5,
    "metadata": {"user_id": "u"},
}
BODIES = [
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", COMPLETION),
    ("/v1/embeddings", {"input": ["One two", [1, 2, 3]], "encoding_format": "base64", "pooling": "mean"}),
    ("/v1/responses", RESPONSE),
    ("/v1/messages", MESSAGE),
    ("/tokenize", {"prompt": "One two", "return_token_strs": True}),
    ("/detokenize", {"tokens": [1, 2, 3]}),
    ("/apply-template", {"messages": CHAT["messages"]}),
]
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    2**31,
    2**63,
    10**30,
    0.5,
    1e308,
    "",
    "x",
    "\ud83d",
    "\u0000",
    [],
    {},
    [[]],
    [None],
]

SCRAPS = [b"\xff", b"\x00", b"\\ud83d", b"9" * 400, b"[" * 2000, b'"', b"NaN", b"1e999"]


@pytest.fixture(scope="module")
def server(smollm2_path: Path) -> Iterator[RunningServer]:
    """Short answers: the context has 224 positions. The template shows tools and calls."""
    options = {"threads": 1, "max_model_len": 224, "chat_template": template("hermes")}
    with LLM(smollm2_path, **options) as llm, running(llm, served_names=("smollm2",)) as started:
        yield started
        until(lambda: len(started.service.works) == 0, "all have ended")
        assert llm.engine().call(lambda core: len(core.generations())).result(SECONDS) == 0
        llm.engine().call(lambda core: core.check()).result(SECONDS)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a value, with each of its keys or indices."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def damaged(body: dict[str, Any], chance: random.Random) -> bytes:
    """The body with some values or some bytes replaced, taken out or doubled."""
    copy = json.loads(json.dumps(body))
    for _ in range(chance.randrange(3)):
        holder, key = chance.choice(list(places(copy)))
        action = chance.randrange(4)
        if action == 0:
            del holder[key]
        elif action == 1 and isinstance(holder, dict):
            holder[chance.choice(["", "zzz", "n", "role", "tools", "a" * 1000])] = holder.pop(key)
        elif action == 2:
            holder[key] = [holder[key]] * chance.randrange(3)
        else:
            holder[key] = deepcopy(chance.choice(ODD))  # what is put there may be damaged next
        if not copy:
            break
    data = bytearray(json.dumps(copy).encode())
    for _ in range(chance.choice([0, 0, 1, 3])):
        start = chance.randrange(len(data))
        end = min(start + chance.randrange(1, 9), len(data))
        action = chance.randrange(4)
        if action == 0:
            data[start] = chance.randrange(256)
        elif action == 1:
            del data[start:end]
        elif action == 2:
            data[start:start] = data[start:end]
        else:
            data[start:start] = chance.choice(SCRAPS)
        data = data or bytearray(b" ")
    return bytes(data)


def test_damaged_bodies(server: RunningServer) -> None:
    chance = random.Random(20240611)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
    statuses: dict[int, int] = {}
    for number in range(COUNT):
        path, body = BODIES[number % len(BODIES)]
        data = damaged(body, chance)
        connection.request("POST", path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = response.read()
        statuses[response.status] = statuses.get(response.status, 0) + 1
        assert response.status in (200, 400, 404), (path, data, content)
        if response.status != 200:
            names = {"message", "type"} if path == "/v1/messages" else {"message", "type", "param", "code"}
            assert set(json.loads(content)["error"]) == names
        elif response.headers["Content-Type"].startswith("text/event-stream"):
            last = content.rstrip().rsplit(b"\n\n", 1)[-1]
            ends = {"/v1/responses": b"event: response.", "/v1/messages": b"event: message_stop"}
            assert last.startswith(ends.get(path, b"data: [DONE]")), (path, data, content)
        else:
            json.loads(content)
    assert min(statuses[200], statuses[400]) > COUNT / 10, "both kinds are met"
