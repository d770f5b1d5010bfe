"""Requests that are as large as a body may be: looked at beside the event loop, answered within bounds, refused for
good where to try again would not help.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cutaway import LLM
from cutaway.server.local import tokens
from cutaway.server.openai import completions, embeddings
from cutaway.tokenizer.tokenizer import Tokenizer
from support.http_server import RunningServer, running

CALLS = [{"id": f"call{number}", "type": "function", "function": {"name": "f"}} for number in range(2000)]


@pytest.mark.parametrize(
    ("path", "body", "holder", "name"),
    [
        ("/detokenize", {"tokens": [5, 6]}, tokens, "check_ids"),
        ("/detokenize", {"tokens": [5, 6]}, tokens, "json_response"),
        ("/tokenize", {"prompt": "The sea", "return_token_strs": True}, Tokenizer, "piece"),
        ("/tokenize", {"prompt": "The sea"}, tokens, "json_response"),
        ("/v1/embeddings", {"input": [5, 6]}, embeddings, "check_prompt_ids"),
        ("/v1/completions", {"prompt": [5, 6], "max_tokens": 1}, completions, "check_prompt_ids"),
    ],
)
def test_what_takes_long_is_done_beside_the_event_loop(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], holder: Any, name: str
) -> None:
    """Two million ids take seconds, in which no stream went on."""
    plain: Callable[..., Any] = getattr(holder, name)
    threads: set[str] = set()

    def noted(*arguments: Any, **named: Any) -> Any:
        threads.add(threading.current_thread().name)
        return plain(*arguments, **named)

    monkeypatch.setattr(holder, name, noted)
    assert server.post(path, body).status == 200
    assert threads
    assert all(each.startswith("cutaway-encode") for each in threads), threads


def test_few_ids_of_much_text(llm: LLM) -> None:
    """A reply waits in memory until its client has read it, so it is bounded as a request is."""
    tokenizer = llm.tokenizer
    longest = max(range(tokenizer.vocab_size), key=lambda token: len(tokenizer.token_bytes(token)))
    size = len(tokenizer.token_bytes(longest))
    with running(llm, max_body_size=1000) as server:
        most = 1000 // size
        assert len(server.post("/detokenize", {"tokens": [longest] * most}).json["prompt"].encode()) == most * size
        refused = server.post("/detokenize", {"tokens": [longest] * (most + 1)})
    assert (refused.status, refused.error["param"]) == (400, "tokens")
    assert f"{(most + 1) * size} bytes of text together; the server decodes 1000 at most" in refused.error["message"]


@pytest.mark.parametrize(
    ("path", "body", "name", "answers"),
    [
        ("/v1/completions", {"prompt": ["a"] * 5, "max_tokens": 1}, "prompt", 5),
        ("/v1/completions", {"prompt": ["a"] * 3, "n": 2, "max_tokens": 1, "stream": True}, "prompt", 6),
        ("/v1/embeddings", {"input": ["a"] * 5}, "input", 5),
    ],
)
def test_more_prompts_than_an_empty_queue_takes(
    server: RunningServer,
    llm: LLM,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    body: dict[str, Any],
    name: str,
    answers: int,
) -> None:
    """They are refused for good: a client that was told to try again would do so for ever."""
    monkeypatch.setattr(llm, "settings", replace(llm.settings, max_waiting=4))
    refused = server.post(path, body)
    assert (refused.status, refused.error["param"], refused.error["code"]) == (400, name, "capacity_exceeded")
    assert f"for {answers} answers with {answers} tokens of prompts" in refused.error["message"]
    assert "places for 4 (--max-waiting)" in refused.error["message"]
    assert server.post(path, {**body, name: ["a"] * 2}).status == 200
    if name == "prompt":
        assert server.post(path, {**body, "prompt": "a", "n": 5}).status == 200, "an empty queue takes any request"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "a", "x" * 100_000: 1}),
        ("/v1/completions", {"prompt": "a", "stream_options": {"x" * 100_000: 1}}),
        ("/v1/completions", {"prompt": "a", "guided_json": {"properties": {"x" * 50_000: {"nonsense": 1}}}}),
        ("/v1/chat/completions", {"messages": [{"role": "x" * 100_000, "content": ""}]}),
        (
            "/v1/chat/completions",
            {
                "messages": [
                    {"role": "assistant", "content": "", "tool_calls": CALLS},
                    {"role": "tool", "tool_call_id": "another", "content": ""},
                ]
            },
        ),
    ],
)
def test_an_error_is_short(server: RunningServer, path: str, body: dict[str, Any]) -> None:
    """Whatever is wrong, the reply does not repeat all of it."""
    refused = server.post(path, body)
    assert refused.status == 400
    assert refused.error["param"]
    assert len(refused.body) < 3000
