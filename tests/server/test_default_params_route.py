"""What a model's authors advise is in effect where a request says nothing, in every API, and is told."""

from typing import Any

import pytest

from cutaway import LLM
from support.http_server import RunningServer

MESSAGES = [{"role": "user", "content": "Name a river."}]
ADVISED = {"temperature": 0.3, "top_k": 7, "repetition_penalty": 1.2}


@pytest.fixture(autouse=True)
def _advice(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm, "default_params", ADVISED)


def test_it_is_told_with_the_model(server: RunningServer) -> None:
    for entry in server.get("/v1/models").json["data"]:
        assert entry["default_sampling_params"] == ADVISED


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_what_is_given_comes_first(server: RunningServer, path: str) -> None:
    prompt: dict[str, Any] = {"prompt": "A"} if path == "/v1/completions" else {"messages": MESSAGES}
    for given, want in (({}, ADVISED), ({"temperature": 0, "top_k": None}, {**ADVISED, "temperature": 0})):
        reply = server.post(path, {**prompt, **given, "max_tokens": 1, "return_parameters": True})
        parameters = reply.json["cutaway"]["parameters"]
        assert {name: parameters[name] for name in ADVISED} == want
        assert parameters["top_p"] == 1


def test_responses(server: RunningServer) -> None:
    body = {"input": "A", "max_output_tokens": 1}
    assert server.post("/v1/responses", body).json["temperature"] == 0.3
    assert server.post("/v1/responses", {**body, "temperature": 1}).json["temperature"] == 1


def test_messages(server: RunningServer, llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its replies echo no parameters: the text of a seed tells them."""

    def said(**fields: Any) -> Any:
        body = {"messages": MESSAGES, "max_tokens": 24, "seed": 5, **fields}
        return server.post("/v1/messages", body).json["content"]

    monkeypatch.setattr(llm, "default_params", {"temperature": 0.3, "top_k": 7})
    advised = said()
    monkeypatch.setattr(llm, "default_params", {})
    assert said(temperature=0.3, top_k=7) == advised
    assert said() != advised
