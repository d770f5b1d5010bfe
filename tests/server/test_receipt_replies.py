"""A server that records: each reply's receipt, if it is asked for, is that of the record, which replays."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cutaway import LLM, Record
from cutaway.audit.record.read_receipts import check_held
from cutaway.audit.record.verify import verify
from support.http_server import RunningServer, running
from support.records import whole_requests


class Recorded(NamedTuple):
    """A server, and the file that it writes."""

    server: RunningServer
    path: Path
    model: Path


@pytest.fixture(scope="module")
def recorded(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    path = tmp_path_factory.mktemp("record") / "answers.jsonl"
    with (
        LLM(smollm2_path, threads=2, max_model_len=256, record=Record(path)) as llm,
        running(llm, served_names=("smollm2",)) as server,
    ):
        yield Recorded(server, path, smollm2_path)


OTHERS: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "Hello", "max_output_tokens": 3},
    "/v1/messages": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3},
    "/v1/embeddings": {"input": "Hello"},
}
"""Routes beside chats and completions."""


def receipts(recorded: Recorded) -> list[Any]:
    """Of each kind of reply that can have one."""
    server, few = recorded.server, {"max_tokens": 3, "seed": 5, "return_receipt": True}
    chat = server.chat(**few).json["cutaway"]["receipt"]
    streamed = server.chat(**few, stream=True).events[-2]["cutaway"]["receipt"]
    several = server.complete(**{**few, "prompt": ["The sea is", "The sky is"]}).json["cutaway"]["receipts"]
    found = [chat, streamed, *several]
    for path, body in OTHERS.items():
        found.append(server.post(path, {**body, "return_receipt": True}).json["cutaway"]["receipt"])
    texts = {"input": ["The sea", "The sky"], "return_receipt": True}
    return [*found, *server.post("/v1/embeddings", texts).json["cutaway"]["receipts"]]


def test_receipts_are_those_of_the_record(recorded: Recorded) -> None:
    given = receipts(recorded)
    assert len({each["hash"] for each in given}) == len(given) == 9
    for each in given:
        assert check_held(recorded.path, each) is None


def test_nothing_is_added_unasked(recorded: Recorded) -> None:
    assert "cutaway" not in recorded.server.chat(max_tokens=2).json
    assert recorded.server.chat(max_tokens=2, stream=True).events[-2]["choices"] != []


def test_an_answer_of_a_form_with_parameters(recorded: Recorded) -> None:
    schema = {"type": "object", "properties": {"at": {"enum": ["sea", "sky"]}}, "required": ["at"]}
    reply = recorded.server.chat(
        max_tokens=40,
        seed=3,
        response_format={"type": "json_schema", "json_schema": {"name": "place", "schema": schema}},
        return_receipt=True,
        return_parameters=True,
    )
    assert reply.status == 200, reply
    found = reply.json["cutaway"]
    assert check_held(recorded.path, found["receipt"]) is None
    assert found["seeds"] == [3]
    requests = whole_requests(recorded.path)
    (request,) = [each for each in requests if each.id == found["receipt"]["request"]]
    assert "sky" in request.begin.content["params"]["structured_outputs"]["json"]


def test_a_client_that_leaves_is_recorded_as_far_as_it_came(recorded: Recorded) -> None:
    body = {"prompt": "Once upon a time", "max_tokens": 200, "stream": True, "ignore_eos": True, "user": "x"}
    with recorded.server.connection("/v1/completions", body) as connected:
        seen = b""
        while seen.count(b"data: ") < 3:
            seen += connected.recv(4096)
    while not (left := _left(recorded)):
        pass
    assert 3 <= left[0].end.content["tokens"][0] < 200


def _left(recorded: Recorded) -> list[Any]:
    requests = whole_requests(recorded.path)
    return [each for each in requests if each.end is not None and each.end.content["reason"] == "abort"]


def test_what_was_served_replays(recorded: Recorded) -> None:
    """All that this file's tests have asked for; offline, by another engine."""
    recorded.server.complete(max_tokens=3, seed=1, logprobs=2, echo=True)
    recorded.server.post("/v1/embeddings", {"input": "The sea"})
    verdict = verify(recorded.path, str(recorded.model), threads=1)
    assert verdict.same_bits, verdict
    assert verdict.requests >= 2


def test_a_server_without_a_record_gives_no_receipt(server: RunningServer) -> None:
    for path, body in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}),
        ("/v1/completions", {"prompt": "Hello"}),
        *OTHERS.items(),
    ):
        refused = server.post(path, {**body, "return_receipt": True})
        assert refused.status == 400
        assert "return_receipt is true" in refused.json["error"]["message"]
        assert "--record" in refused.json["error"]["message"]
        few = {"max_tokens": 1} if "input" not in body else {}
        assert server.post(path, {**body, **few, "return_receipt": False}).status == 200


def test_a_reply_says_that_the_record_has_ended(smollm2_path: Path, tmp_path: Path) -> None:
    """Whether it was asked for its receipt or not."""
    record = Record(tmp_path / "answers.jsonl")
    with (
        LLM(smollm2_path, threads=1, max_model_len=128, record=record) as llm,
        running(llm, served_names=("smollm2",)) as server,
    ):
        record._sink.fail(OSError("gone"))
        found = server.chat(max_tokens=2).json["cutaway"]
        assert "ended by an error (OSError: gone)" in found["record_error"]
        assert "receipt" not in found
        assert server.chat(max_tokens=2, return_receipt=True).json["cutaway"]["receipt"] is None
