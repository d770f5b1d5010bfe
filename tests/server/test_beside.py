"""What comes beside an answer is there on every route that computes, whole and streamed, for the official clients."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anthropic
import openai
import pytest

from cutaway import LLM, Record
from cutaway.audit.record.read_receipts import check_held
from support.http_server import RunningServer, running
from support.patience import SECONDS

ASKED = {"return_parameters": True, "return_receipt": True, "return_timings": True}
MODEL: Any = "smollm2"
MESSAGES: Any = [{"role": "user", "content": "Name a river."}]
Ask = Callable[["Clients"], tuple[Any, Any]]


class Clients(NamedTuple):
    openai: openai.OpenAI
    anthropic: anthropic.Anthropic
    server: RunningServer
    record: Path


@pytest.fixture(scope="module")
def clients(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """Of a server that keeps a record and takes times."""
    path = tmp_path_factory.mktemp("record") / "answers.jsonl"
    with (
        LLM(smollm2_path, threads=1, max_model_len=128, record=Record(path)) as llm,
        running(llm, served_names=(MODEL,), timings=True) as server,
    ):
        options: Any = {"api_key": "none", "max_retries": 0, "timeout": SECONDS}
        with (
            openai.OpenAI(base_url=f"{server.url}/v1", **options) as one,
            anthropic.Anthropic(base_url=server.url, **options) as other,
        ):
            yield Clients(one, other, server, path)


def ask_chat(clients: Clients) -> tuple[Any, Any]:
    fields: Any = {"model": MODEL, "messages": MESSAGES, "max_tokens": 3, "extra_body": ASKED}
    whole = clients.openai.chat.completions.create(**fields)
    *_, last = clients.openai.chat.completions.create(**fields, stream=True)
    return whole.cutaway, last.cutaway


def ask_completions(clients: Clients) -> tuple[Any, Any]:
    fields: Any = {"model": MODEL, "prompt": "The Nile", "max_tokens": 3, "extra_body": ASKED}
    whole = clients.openai.completions.create(**fields)
    *_, last = clients.openai.completions.create(**fields, stream=True)
    return whole.cutaway, last.cutaway


def ask_responses(clients: Clients) -> tuple[Any, Any]:
    fields: Any = {"model": MODEL, "input": "Name a river.", "max_output_tokens": 3, "extra_body": ASKED}
    whole: Any = clients.openai.responses.create(**fields)
    *_, last = clients.openai.responses.create(**fields, stream=True)
    kept: Any = clients.openai.responses.retrieve(whole.id)
    assert kept.cutaway == whole.cutaway
    return whole.cutaway, last.response.cutaway


def ask_messages(clients: Clients) -> tuple[Any, Any]:
    fields: Any = {"model": MODEL, "messages": MESSAGES, "max_tokens": 3, "extra_body": ASKED}
    whole: Any = clients.anthropic.messages.create(**fields)
    with clients.anthropic.messages.stream(**fields) as stream:
        (last,) = [event.model_extra["cutaway"] for event in stream if event.type == "message_delta"]
        assert stream.get_final_message().usage.output_tokens == 3
    return whole.cutaway, last


@pytest.mark.parametrize("ask", [ask_chat, ask_completions, ask_responses, ask_messages])
def test_an_answer_has_all_three(clients: Clients, ask: Ask) -> None:
    for said in ask(clients):
        assert set(said) == {"parameters", "seeds", "ignored", "statistics", "receipt", "timings"}
        assert check_held(clients.record, said["receipt"]) is None
        assert said["timings"]["outputs"] == 3
        assert said["timings"]["seconds"] > 0
        assert said["timings"]["limits"]["stream"]["best"] > 1e8


def test_an_embedding_has_what_it_can(clients: Clients) -> None:
    found: Any = clients.openai.embeddings.create(model=MODEL, input="The sea", extra_body={**ASKED, "pooling": "mean"})
    assert set(found.cutaway) == {"pooling", "normalized", "dimensions", "ignored", "receipt", "timings"}
    assert check_held(clients.record, found.cutaway["receipt"]) is None
    assert found.cutaway["timings"]["tokens"] == found.usage.prompt_tokens


def test_the_openapi_document_has_the_fields(clients: Clients) -> None:
    """And those of what the others know, with what they take: a value beyond it is refused."""
    document = clients.server.get("/openapi.json").json

    def fields(path: str) -> Any:
        body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        return document["components"]["schemas"][body["$ref"].rpartition("/")[2]]["properties"]

    routes = ("chat/completions", "completions", "responses", "messages", "embeddings")
    for route in routes:
        found = fields(f"/v1/{route}")
        for name in ASKED:
            assert found[name]["anyOf"] == [{"type": "boolean"}, {"type": "null"}]
            assert found[name]["description"]
            refused = clients.server.post(f"/v1/{route}", {"input": "x", name: "yes"})
            assert refused.status == 400
    for path in ("/v1/chat/completions", "/apply-template", "/tokenize"):
        assert fields(path)["reasoning_effort"]["enum"] == ["none", None]
    assert clients.server.chat(reasoning_effort="low").error["param"] == "reasoning_effort"
    assert clients.server.chat(reasoning_effort=None, max_tokens=1).status == 200
    assert "reasoning_effort" not in fields("/v1/completions"), "it is taken there and does nothing, as is told"
