"""Fields that are this server's own: a prompt that is computed whole, and what replies say of what was ignored."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cutaway import LLM
from support.http_server import RunningServer, running

LONG_TEXT = "A text that fills some blocks of the cache, and is asked for again and again. " * 6
QUIET = "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking is false %} quiet{% endif %}"
ROUTES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG_TEXT}], "max_tokens": 4}),
    ("/v1/completions", {"prompt": LONG_TEXT, "max_tokens": 4}),
    ("/v1/responses", {"input": LONG_TEXT, "max_output_tokens": 4}),
]


def cached_and_answer(reply: dict[str, Any]) -> tuple[int, Any]:
    """Cached tokens, and the text that was written."""
    usage = reply["usage"]
    details = usage.get("prompt_tokens_details") or usage["input_tokens_details"]
    if "output" in reply:
        return details["cached_tokens"], reply["output"][0]["content"]
    choice = reply["choices"][0]
    return details["cached_tokens"], choice.get("message") or choice["text"]


@pytest.mark.parametrize(("path", "body"), ROUTES, ids=[path for path, _ in ROUTES])
def test_a_prompt_that_is_computed_whole(server: RunningServer, path: str, body: dict[str, Any]) -> None:
    """The same answer, and nothing of it from the cache, though the cache has it."""
    fields = {**body, "temperature": 0}
    server.post(path, fields)
    cached, answer = cached_and_answer(server.post(path, {**fields, "cache_prompt": True}).json)
    assert cached > 0
    assert cached_and_answer(server.post(path, {**fields, "cache_prompt": False}).json) == (0, answer)
    assert cached_and_answer(server.post(path, fields).json) == (cached, answer)


def test_a_response_tells_what_is_in_effect(server: RunningServer) -> None:
    body = {"input": "x", "max_output_tokens": 1, "seed": 5, "user": "somebody"}
    told = server.post("/v1/responses", {**body, "return_parameters": True}).json["cutaway"]
    assert (told["ignored"], told["seeds"], told["parameters"]["max_tokens"]) == (["user"], [5], 1)
    assert told["statistics"][0]["generated_tokens"] == 1
    assert "cutaway" not in server.post("/v1/responses", body).json


def test_a_message_tells_what_is_in_effect(server: RunningServer) -> None:
    messages = [{"role": "user", "content": "x"}]
    body = {"messages": messages, "max_tokens": 1, "seed": 5, "metadata": {"user_id": "x"}}
    told = server.post("/v1/messages", {**body, "return_parameters": True}).json["cutaway"]
    assert (told["ignored"], told["seeds"], told["parameters"]["max_tokens"]) == (["metadata"], [5], 1)
    streamed = server.post("/v1/messages", {**body, "return_parameters": True, "stream": True}).body.decode()
    assert '"ignored":["metadata"]' in streamed.replace(" ", "").split("message_delta")[-1]
    assert "cutaway" not in server.post("/v1/messages", body).json


def test_embeddings_tell_what_was_ignored(server: RunningServer) -> None:
    body = {"input": "x", "user": "somebody"}
    told = server.post("/v1/embeddings", {**body, "return_parameters": True, "reasoning_effort": "none"}).json
    assert told["cutaway"]["ignored"] == ["reasoning_effort", "user"]
    assert "ignored" not in server.post("/v1/embeddings", body).json["cutaway"]


def test_no_thoughts_where_the_template_has_none(server: RunningServer) -> None:
    """It does nothing there, and that is said; the other values are refused."""
    fields = {"reasoning_effort": "none", "return_parameters": True, "max_tokens": 1}
    assert server.chat(**fields).json["cutaway"]["ignored"] == ["reasoning_effort"]
    assert server.complete(**fields).json["cutaway"]["ignored"] == ["reasoning_effort"]


@pytest.fixture
def quiet(smollm2_path: Path) -> Iterator[RunningServer]:
    """A model whose template reads ``enable_thinking``."""
    with LLM(smollm2_path, threads=1, max_model_len=128, chat_template=QUIET) as llm, running(llm) as started:
        yield started


def test_no_thoughts_where_the_template_can(quiet: RunningServer) -> None:
    fields = {"return_token_ids": True, "return_parameters": True, "max_tokens": 1}
    said = quiet.chat(**fields, reasoning_effort="none").json
    named = quiet.chat(**fields, chat_template_kwargs={"enable_thinking": False}).json
    assert said["prompt_token_ids"] == named["prompt_token_ids"] != quiet.chat(**fields).json["prompt_token_ids"]
    assert said["cutaway"]["ignored"] == []
    refused = quiet.chat(reasoning_effort="none", chat_template_kwargs={"enable_thinking": True})
    assert (refused.status, refused.error["param"]) == (400, "reasoning_effort")
