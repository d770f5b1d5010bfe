"""What is refused, by status, parameter and words; whatever was sent, the server answers the next request."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway import LLM
from support.http_server import RunningServer

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(autouse=True, scope="module")
def _alive(server: RunningServer) -> Iterator[None]:
    yield
    assert server.complete(max_tokens=1).status == 200


FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"temperature": -0.1}, "temperature", "temperature is -0.1; it must be a number from 0 to 2"),
    ({"temperature": 2.1}, "temperature", "from 0 to 2"),
    ({"temperature": "0.5"}, "temperature", "temperature is '0.5'; it must be a number"),
    ({"temperature": True}, "temperature", "temperature is True"),
    ({"top_p": 0}, "top_p", "above 0 and at most 1"),
    ({"top_p": 1.1}, "top_p", "above 0 and at most 1"),
    ({"top_k": -2}, "top_k", "at least -1"),
    ({"top_k": 1.5}, "top_k", "an integer"),
    ({"min_p": 2}, "min_p", "from 0 to 1"),
    ({"n": 0}, "n", "n is 0; it must be an integer from 1 to 128"),
    ({"n": 129}, "n", "further requests"),
    ({"n": 1.0}, "n", "an integer"),
    ({"seed": 2**63}, "seed", "an integer from -9223372036854775808"),
    ({"seed": -(2**63) - 1}, "seed", "Leave it out for a fresh one"),
    ({"seed": "100"}, "seed", "seed is '100'"),
    ({"seed": 10**4000}, "seed", "seed is 1000"),
    ({"max_tokens": 0}, "max_tokens", "max_tokens is 0; it must be an integer of at least 1"),
    ({"max_tokens": -5}, "max_tokens", "at least 1"),
    ({"max_tokens": "many"}, "max_tokens", "'many'"),
    ({"max_tokens": 100_000_000}, "max_tokens", "maximum context length is 1024"),
    ({"min_tokens": 17, "max_tokens": 16}, "min_tokens", "max_tokens is 16"),
    ({"stop": ""}, "stop", "none of them empty"),
    ({"stop": ["a", ""]}, "stop", "none of them empty"),
    ({"stop": 5}, "stop", "a text or a list"),
    ({"stop": ["x"] * 1 + [str(i) for i in range(64)]}, "stop", "65 texts"),
    ({"stop": ["\ud83d"]}, "stop", "lone surrogate"),
    ({"logit_bias": {"191222": -100}}, "logit_bias", "id 191222; this model's ids run from 0 to 49151"),
    ({"logit_bias": {"-1": 1}}, "logit_bias", "'-1'"),
    ({"logit_bias": {"foo": 1}}, "logit_bias", "'foo'"),
    ({"logit_bias": {"5": 1e9}}, "logit_bias", "from -100 to 100"),
    ({"logit_bias": [5]}, "logit_bias", "a mapping"),
    ({"stop_token_ids": [151645]}, "stop_token_ids", "151645"),
    ({"presence_penalty": 3}, "presence_penalty", "from -2 to 2"),
    ({"repetition_penalty": 0}, "repetition_penalty", "above 0"),
    ({"ignore_eos": 1}, "ignore_eos", "true or false"),
    ({"stream": "yes"}, "stream", "stream is 'yes'; it must be a valid boolean"),
    ({"stream": 1}, "stream", "stream is 1"),
    ({"stream": True, "stream_options": {"include_usages": True}}, "stream_options.include_usages", "include_usage"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage", "boolean"),
    ({"stream_options": []}, "stream_options", "stream_options is []"),
    ({"model": 5}, "model", "model is 5; it must be a valid string"),
    ({"temprature": 1}, "temprature", "'temprature' is no field of this request. Did you mean temperature?"),
    ({"json_schema": {"type": "object"}}, "json_schema", "Use response_format, or structured_outputs"),
    ({"grammar": "root ::= [a-z]"}, "grammar", "Use response_format, or structured_outputs"),
    ({"functions": [{"name": "f"}]}, "functions", "It is deprecated: use tools"),
    ({"function_call": {"name": "f"}}, "function_call", "It is deprecated: use tools"),
    ({"tool_choice": "required"}, "tool_choice", "tool_choice is 'required'; it must be"),
    ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern", "White space is bounded here"),
    ({"suffix": "end"}, "suffix", "Nothing is inserted here"),
    ({"cache_prompt": 1}, "cache_prompt", "cache_prompt is 1; it must be a valid boolean"),
    ({"reasoning_effort": "low"}, "reasoning_effort", "reasoning_effort is 'low'; it must be null or 'none'"),
    ({"enable_thinking": False}, "enable_thinking", "Use chat_template_kwargs"),
    ({"return_token_ids": "x"}, "return_token_ids", "boolean"),
]
"""Fields, the parameter that the error names, and a part of its words. Both APIs have them all."""


@pytest.mark.parametrize(("fields", "param", "words"), FIELDS, ids=[str(index) for index in range(len(FIELDS))])
def test_fields(server: RunningServer, fields: dict[str, Any], param: str, words: str) -> None:
    """The same whether the answer would be streamed: nothing is begun."""
    for reply in (server.chat(**fields), server.complete(**fields), server.complete(**{"stream": True, **fields})):
        assert (reply.status, reply.error["param"]) == (400, param)
        assert words in reply.error["message"]
        assert reply.error["type"] == "invalid_request_error"
        assert reply.error["code"]


ARGUMENTS = "messages[0].tool_calls[0].function.arguments"


def calls(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    """A message with calls, each sound but for its changes."""
    sound = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [{"role": "assistant", "tool_calls": [{**sound, **each} for each in changes]}]


MESSAGES: list[tuple[Any, str, str]] = [
    (None, "messages", "messages is None"),
    ([], "messages", "at least 1 item"),
    ("Hello", "messages", "valid list"),
    (["Hello"], "messages[0]", "messages[0] is 'Hello'"),
    ([{"content": "x"}], "messages[0].role", "messages[0].role is 'missing'; it must be one of system, developer"),
    ([{"role": "boss", "content": "x"}], "messages[0].role", "'boss'"),
    ([{"role": ["user"], "content": "x"}], "messages[0].role", "['user']"),
    ([{"role": "user"}], "messages[0].content", "messages[0].content is None"),
    ([{"role": "user", "content": 5}], "messages[0].content", "a text or a list of parts"),
    ([*calls({}), {"role": "tool", "content": {}, "tool_call_id": "1"}], "messages[1].content", "{}"),
    (
        [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {}}]}],
        "messages[0].content[1].type",
        "messages[0].content[1].type is 'image_url'; it must be 'text'",
    ),
    ([{"role": "system", "content": ["x"]}], "messages[0].content[0].type", "None"),
    ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "messages[0].content[0].text", "a text"),
    ([{"role": "user", "content": "emoji \ud83d"}], "messages[0].content", "lone surrogate, U+D83D, at position 6"),
    ([{"role": "user", "content": "x", "name": "\udcf0"}], "messages[0].name", "lone surrogate"),
    ([{"role": "assistant", "content": "", "tool_calls": {}}], "messages[0].tool_calls", "a list of calls"),
    (calls({"function": {"arguments": "{}"}}), "messages[0].tool_calls[0].function.name", "it must be a text"),
    (calls({"function": {"name": "", "arguments": "{}"}}), "messages[0].tool_calls[0].function.name", "a text"),
    (calls({"function": {"name": "f", "arguments": 5}}), ARGUMENTS, "JSON text"),
    (calls({"function": {"name": "f", "arguments": "{"}}), ARGUMENTS, "is none"),
    (calls({"function": {"name": "f", "arguments": "[1]"}}), ARGUMENTS, "'[1]'"),
    (
        calls({"function": {"name": "f", "arguments": '{"a": NaN}'}}),
        ARGUMENTS,
        "NaN",
    ),
    (
        calls({"function": {"name": "f", "arguments": "[" * 30_000}}),
        ARGUMENTS,
        "none",
    ),
    (calls({"type": "custom"}), "messages[0].tool_calls[0].type", "'function'"),
    (calls({"function": None}), "messages[0].tool_calls[0].function", "an object"),
    (calls({"id": None}), "messages[0].tool_calls[0].id", "a text that no other call of the message has"),
    (calls({"id": ""}), "messages[0].tool_calls[0].id", "a text"),
    (calls({}, {}), "messages[0].tool_calls[1].id", "'1'; it must be a text that no other call"),
    (
        [{"role": "user", "content": "", "tool_calls": [{}]}],
        "messages[0].tool_calls",
        "left out of a message",
    ),
    ([*calls({}), {"role": "tool", "content": "x"}], "messages[1].tool_call_id", "None; it must be the id of a call"),
    ([*calls({}), {"role": "tool", "content": "x", "tool_call_id": "2"}], "messages[1].tool_call_id", "one of '1'"),
    ([{"role": "tool", "content": "x", "tool_call_id": "1"}, *calls({})], "messages[0].tool_call_id", "there is none"),
    ([{"role": "function", "content": "x", "name": "f"}], "messages[0].role", "'tool', with tool_call_id"),
    ([{"role": "assistant", "function_call": {"name": "f"}}], "messages[0].function_call", "Use tool_calls"),
    ([{"role": "assistant", "content": "", "reasoning_content": 5}], "messages[0].reasoning_content", "a text"),
    (calls({}), "messages[0].tool_calls", "1 call, which this model's chat template leaves out"),
    ([{"role": "assistant", "tool_calls": [5]}], "messages[0].tool_calls[0]", "an object"),
]


@pytest.mark.parametrize(("messages", "param", "words"), MESSAGES, ids=[str(index) for index in range(len(MESSAGES))])
def test_messages(server: RunningServer, messages: Any, param: str, words: str) -> None:
    reply = server.post(CHAT, {"messages": messages})
    assert (reply.status, reply.error["param"]) == (400, param)
    assert words in reply.error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": True}, "top_logprobs"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
        ({"max_completion_tokens": "many"}, "max_completion_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"echo": True}, "echo"),
        ({"prompt": "x"}, "prompt"),
        ({"chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"chat_template": "{{ messages }}"}, "chat_template"),
        ({"continue_final_message": True}, None),
    ],
)
def test_fields_of_chats(server: RunningServer, fields: dict[str, Any], param: str | None) -> None:
    reply = server.chat(**fields)
    if param is None:  # a user's message can be gone on with
        assert reply.status == 200
        return
    assert (reply.status, reply.error["param"]) == (400, param)


PROMPTS: list[tuple[Any, str, str]] = [
    (None, "prompt", "prompt is None; it must be a text"),
    ("", "prompt", "prompt is empty"),
    ([], "prompt", "none of them empty"),
    ([[]], "prompt[0]", "none of them empty"),
    ([""], "prompt", "prompt is empty"),
    ({}, "prompt", "a list of token ids"),
    ([200000], "prompt[0]", "prompt[0] is 200000; it must be an integer from 0 to 49151"),
    ([-1], "prompt[0]", "prompt[0] is -1"),
    ([[1], [999999]], "prompt[1][0]", "prompt[1][0] is 999999"),
    ([1.5], "prompt[0]", "1.5"),
    (["a", 1], "prompt[1]", "prompt[1] is 1"),
    ([True], "prompt[0]", "True"),
    ([[1, "1"]], "prompt[0]", "'1'"),
    ([2**63], "prompt[0]", "9223372036854775808"),
    (["x"] * 1025, "prompt", "prompt has 1025 prompts; the limit is 1024"),
    ([5] * 1024, "prompt", "the prompt is too long: it has 1024 tokens"),
    ("\udcf0", "prompt", "lone surrogate"),
    (["a", "\udcf0"], "prompt[1]", "lone surrogate"),
]


@pytest.mark.parametrize(("prompt", "param", "words"), PROMPTS, ids=[str(index) for index in range(len(PROMPTS))])
def test_prompts(server: RunningServer, prompt: Any, param: str, words: str) -> None:
    reply = server.complete(prompt=prompt)
    assert (reply.status, reply.error["param"]) == (400, param)
    assert words in reply.error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"best_of": 2}, "best_of"),
        ({"n": 2, "best_of": 3}, "best_of"),
        ({"echo": "yes"}, "echo"),
        ({"max_completion_tokens": 5}, "max_completion_tokens"),
    ],
)
def test_fields_of_completions(server: RunningServer, fields: dict[str, Any], param: str) -> None:
    reply = server.complete(**fields)
    assert (reply.status, reply.error["param"]) == (400, param)


def test_what_is_missing(server: RunningServer) -> None:
    for path, param in ((CHAT, "messages"), (COMPLETE, "prompt")):
        reply = server.post(path, {})
        assert (reply.status, reply.error["param"]) == (400, param)
        assert reply.error["message"] == f"{param} is missing; it is required. Add it."


@pytest.mark.parametrize("path", [CHAT, COMPLETE])
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[]", "the body is []; it must be a JSON object"),
        (b"true", "the body is True"),
        (b"null", "the body is"),
        (b"123", "the body is 123"),
        (b'"str"', "the body is 'str'"),
        (b"", "the body is missing"),
        (b" ", "the body is no JSON"),
        (b"{", "the body is no JSON"),
        (b"{'a': 1}", "the body is no JSON"),
        ('{"prompt": "ü"}'.encode("latin-1"), "the body is no UTF-8: byte 12 is 0xfc"),
        (b'\xef\xbb\xbf{"prompt": "x"}', "BOM"),
        (b'{"temperature": NaN}', "NaN is no number of JSON"),
        (b'{"temperature": -Infinity}', "Infinity is no number of JSON"),
        (b'{"temperature": 1e999}', "1e999 is larger than any float"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "the body is no JSON"),
        (b'{"zzz\\ud83d": 1}', r"the key 'zzz\ud83d' has half a character"),
        (b'{"n": 1, "n": 2}', "the key 'n' is there twice"),
        (b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested more than 64 levels"),
        (b'{"x":' + b'{"x":' * 10_000 + b"1" + b"}" * 10_001, "nested more than 64 levels"),
        (b'{"x":' + b"[" * 64 + b"]" * 64 + b"}", "nested more than 64 levels"),
        (b'{"x":' + b"[" * 63 + b"]" * 63 + b"}", "'x' is no field"),
    ],
)
def test_bodies(server: RunningServer, path: str, body: bytes, words: str) -> None:
    reply = server.post(path, body)
    assert reply.status == 400
    if words == "'x' is no field":
        assert reply.error["param"] in ("x", "messages", "prompt")  # whichever is looked at first
    else:
        assert words in reply.error["message"]


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx", "json"])
def test_content_types(server: RunningServer, kind: str) -> None:
    reply = server.post(COMPLETE, {"prompt": "x"}, {"Content-Type": kind})
    assert reply.status == 415
    assert "it must be application/json" in reply.error["message"]


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json"])
def test_content_types_that_are_json(server: RunningServer, kind: str) -> None:
    assert server.post(COMPLETE, {"prompt": "x", "max_tokens": 1}, {"Content-Type": kind}).status == 200


def test_a_pair_of_surrogates_is_a_character(server: RunningServer, llm: LLM) -> None:
    content = b'{"messages": [{"role": "user", "content": "emoji \\ud83d\\ude00"}]'
    body = content + b', "max_tokens": 1, "return_token_ids": true}'
    want = llm.tokenizer.encode_chat([{"role": "user", "content": "emoji 😀"}])
    assert server.post(CHAT, body).json["prompt_token_ids"] == want


def test_what_real_clients_send_beside(server: RunningServer) -> None:
    """It changes no answer, so it is taken."""
    beside = {
        "store": True,
        "user": "somebody",
        "metadata": {"a": "b"},
        "parallel_tool_calls": True,
        "service_tier": "auto",
        "stream_options": {"include_usage": True},
        "tools": None,
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "stop": [],
        "logit_bias": {},
        "seed": -9007199254740991,
        "top_k": 9999999,
        "model": "another-name",
        "cache_prompt": True,
    }
    reply = server.chat(**beside, max_tokens=2)
    assert reply.status == 200
    assert reply.json["model"] == "another-name"
    assert server.complete(**beside, max_tokens=2).status == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(sorted({name for fields, _, _ in FIELDS for name in fields} | {"messages", "prompt", "echo"}))


@given(st.dictionaries(NAMES, JSON, max_size=3), st.sampled_from([CHAT, COMPLETE]))
def test_any_values_of_any_fields(server: RunningServer, fields: dict[str, Any], path: str) -> None:
    """Whatever they are, an answer or a refusal in its shape; never a failure of the server."""
    start = {"messages": [{"role": "user", "content": "x"}]} if path == CHAT else {"prompt": "x"}
    body = {**start, "max_tokens": 1, **fields}
    if "max_tokens" in fields:
        body["max_tokens"] = fields["max_tokens"] if isinstance(fields["max_tokens"], str) else 1
    reply = server.post(path, json.dumps(body).encode())
    assert reply.status in (200, 400, 404), reply
    if reply.status != 200:
        assert reply.error["message"]


def test_the_strategy_has_what_json_lacks() -> None:
    """So that the test before can fail: Python writes NaN, and lone surrogates as escapes."""
    assert b"NaN" in json.dumps(math.nan).encode()
    assert json.dumps("\ud83d") == '"\\ud83d"'
