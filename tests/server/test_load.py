"""Too many requests, clients that leave or don't read, steps that fail, the server's end: nothing hangs or is left."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cutaway import LLM
from cutaway.errors import ComputationError
from cutaway.grammar import grammars as grammars_module
from support.gate import gated
from support.http_server import Reply, RunningServer, running, until
from support.patience import SECONDS, finishes

LONG: dict[str, Any] = {"temperature": 0, "max_tokens": 30, "ignore_eos": True}
LONGER = {**LONG, "max_tokens": 50}


@pytest.fixture(scope="module")
def small(smollm2_path: Path) -> Iterator[LLM]:
    """One sequence runs, four may wait."""
    with LLM(smollm2_path, threads=1, max_model_len=256, max_num_seqs=1, max_waiting=4) as llm:
        yield llm


@pytest.fixture(scope="module")
def server(small: LLM) -> Iterator[RunningServer]:
    """Over it, for the tests that don't end it."""
    with running(small) as started:
        yield started


@pytest.fixture(scope="module")
def want(server: RunningServer) -> Any:
    """What is answered to LONGER when nobody else is there."""
    return server.complete(**LONGER).json["choices"]


def in_engine(llm: LLM) -> int:
    """Requests that the engine has."""
    return llm.engine().call(lambda core: len(core.generations())).result(SECONDS)


def in_engine_now(llm: LLM) -> int:
    """The same, without waiting for the step that is being computed."""
    return len(llm._core.generations())


class Later:
    """A request whose reply is awaited in a thread."""

    def __init__(self, server: RunningServer, path: str = "/v1/completions", **fields: Any) -> None:
        self.replies: list[Reply] = []
        body = {"prompt": "The sea is", **LONG, **fields}
        self._thread = threading.Thread(target=lambda: self.replies.append(server.post(path, body)), daemon=True)
        self._thread.start()

    def reply(self) -> Reply:
        """The reply, when it has come."""
        finishes(self._thread.join)
        return self.replies[0]


def test_a_full_queue(server: RunningServer, small: LLM) -> None:
    """Who finds no place is told at once when to come again; the others, and /health, don't notice."""
    with gated(small) as gate:
        first = Later(server, max_tokens=250)
        until(lambda: len(server.service.works) == 1, "the first runs")
        others = [Later(server, max_tokens=4) for _ in range(2)] + [Later(server, max_tokens=4, n=2)]
        gate.step_until(lambda: len(server.service.works) == 4, "the others are there")
        for fields in ({}, {"stream": True}, {"n": 3}, {"prompt": ["a", "b"]}):
            asked = Later(server, **fields)
            gate.step_until(lambda: len(asked.replies) == 1, "it is refused")  # noqa: B023 - called here alone
            refused = asked.reply()
            assert (refused.status, refused.error["type"]) == (429, "rate_limit_error")
            assert refused.error["code"] == "queue_full"
            assert int(refused.headers["retry-after"]) >= 1
            assert "there is no place for" in refused.error["message"]
        assert server.get("/health").status == 200
        gate.open()
        for each in [first, *others]:
            assert each.reply().status == 200
        assert server.complete(**LONG).status == 200
        until(lambda: in_engine(small) == 0, "nothing is left")


def test_the_prompts_of_a_request_come_together(server: RunningServer, small: LLM) -> None:
    """However many they are, they wait for the end of one step."""
    with gated(small) as gate:
        first = Later(server)
        until(lambda: len(server.service.works) == 1, "the first runs")
        prompts = Later(server, prompt=["a", "b", "c", "d"], max_tokens=1)
        commands = small.engine()._commands
        until(lambda: commands.qsize() == 4, "they are at the engine's door")
        gate.allow(1)
        until(lambda: len(server.service.works) == 2, "they are let in")
        assert gate.steps == 1
        gate.open()
        assert [each["index"] for each in prompts.reply().json["choices"]] == [0, 1, 2, 3]
        assert first.reply().status == 200


@pytest.mark.parametrize(
    ("path", "stream", "waits"),
    [
        ("/v1/completions", False, False),
        ("/v1/chat/completions", True, False),
        ("/v1/chat/completions", False, True),
        ("/v1/completions", True, True),
    ],
)
def test_a_client_that_leaves(
    server: RunningServer, small: LLM, want: Any, path: str, stream: bool, waits: bool
) -> None:
    """Its request ends within two steps, running or queued, and no answer of anybody else changes."""
    start = {"prompt": "x"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "x"}]}
    with gated(small) as gate:
        if waits:
            before = Later(server, **LONGER)
            until(lambda: len(server.service.works) == 1, "the one before runs")
        with server.connection(path, {**start, **LONG, "stream": stream}):
            gate.step_until(lambda: len(server.service.works) == 1 + waits, "it is there")
            begun = gate.steps
            gate.step_until(lambda: gate.steps >= begun + 3, "it runs, or waits on")
        until(lambda: len(server.service.works) == waits, "the server has noticed")
        steps = gate.steps
        gate.step_until(lambda: in_engine_now(small) == waits, "it has ended in the engine")
        assert gate.steps <= steps + 2
        gate.open()
        if waits:
            assert before.reply().json["choices"] == want
    until(lambda: in_engine(small) == 0, "nothing is left")
    assert server.complete(**LONGER).json["choices"] == want


def test_clients_that_leave_at_any_moment(server: RunningServer, small: LLM, want: Any) -> None:
    """Fifty of them, before, while and after they are served; then all is as it was."""
    for number in range(50):
        body = {"prompt": "The sea", "max_tokens": 1 + number % 5, "n": 1 + number % 3, "stream": number % 2 == 0}
        with server.connection("/v1/completions", body) as connected:
            connected.settimeout(0.0005 * (number % 20) or None)
            if number % 20:
                with suppress(TimeoutError):
                    connected.recv(100)
    until(lambda: in_engine(small) == 0, "nothing is left in the engine")
    until(lambda: len(server.service.works) == 0, "nor in the server")
    small.engine().call(lambda core: core.check()).result(SECONDS)
    assert server.complete(**LONGER).json["choices"] == want


def test_a_client_that_does_not_read(server: RunningServer, small: LLM) -> None:
    """It holds no place in the engine: what it will read waits for it, and there is no more of that than a context."""
    body = {"prompt": "x", **LONG, "max_tokens": 60, "stream": True, "logprobs": 20}
    with server.connection("/v1/completions", body) as connected:
        until(lambda: len(server.service.works) == 1, "it is there")
        until(lambda: in_engine(small) == 0, "the engine has done with it")
        assert server.complete(**LONG).status == 200
        text = b""
        while b"[DONE]" not in text:
            text += connected.recv(65536)
        assert text.count(b"data: ") == 61


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError("of the test"), "the server has failed at this request (MemoryError)"),
        (ComputationError("a logit is NaN."), "a logit is NaN."),
    ],
)
def test_a_step_that_fails(server: RunningServer, small: LLM, error: Exception, words: str, stream: bool) -> None:
    """After three tokens: a stream ends with the error, in its own form, and no "[DONE]"."""
    with gated(small) as gate:
        asked = Later(server, stream=stream)
        until(lambda: len(server.service.works) == 1, "it is there")
        gate.allow(3)
        until(lambda: gate.steps == 3, "three steps")
        gate.raises = error
        gate.allow(1)
        reply = asked.reply()
        if stream:
            assert reply.status == 200
            assert 1 <= len(reply.events) <= 4
            assert reply.events[-1]["error"]["type"] == "server_error"
            assert words in reply.events[-1]["error"]["message"]
        else:
            assert reply.status == 500
            assert words in reply.error["message"]
            assert "Traceback" not in reply.error["message"]
            assert reply.headers["x-request-id"]
        gate.open()
        assert server.complete(**LONG).status == 200
    assert b'finished_reason="error"' in server.get("/metrics").body


def test_the_end_with_grace(small: LLM) -> None:
    """What runs is finished, and nobody new is let in."""
    with gated(small) as gate, running(small, grace=SECONDS) as server:
        asked = Later(server, stream=True)
        until(lambda: len(server.service.works) == 1, "it is there")
        late = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
        late.putrequest("POST", "/tokenize")
        late.putheader("Content-Type", "application/json")
        late.putheader("Content-Length", "15")
        late.endheaders(b'{"prompt"')
        server.get("/health")  # so that the server has read that, too
        server.tell_to_end()
        until(lambda: server.service.closing, "it is ending")
        with pytest.raises(OSError):  # noqa: PT011 - refused or reset, as the moment has it
            server.get("/health")
        late.send(b': "x"}')
        refused = late.getresponse()
        assert refused.status == 503
        assert b"the server is shutting down" in refused.read()
        gate.open()
        assert asked.reply().events[-1] == "[DONE]"


@pytest.mark.parametrize("stream", [False, True])
def test_the_end_without_grace(small: LLM, stream: bool) -> None:
    """What runs, and what waits, is told that the server ends."""
    with gated(small) as gate, running(small, grace=0) as server:
        asked = [Later(server, stream=stream) for _ in range(3)]
        gate.step_until(lambda: len(server.service.works) == 3, "they are there")
        server.tell_to_end()
        until(lambda: server.service.closing, "it is ending")
        gate.allow(5)
        for each in asked:
            reply = each.reply()
            error = reply.events[-1]["error"] if stream else reply.error
            assert error["code"] == "shutdown"
            assert reply.status == (200 if stream else 503)


@pytest.mark.parametrize("stream", [False, True])
def test_the_end_while_a_form_is_compiled(small: LLM, monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    """Nothing can hurry the compiler; who waits for it is told when the others are, and the end waits for nobody."""
    go, begun = threading.Event(), threading.Event()

    def slow(form: Any, vocabulary: Any) -> Any:
        begun.set()
        assert go.wait(SECONDS)
        return form

    monkeypatch.setattr(grammars_module, "compile_grammar", slow)
    monkeypatch.setattr(small.requests.grammars, "time_limit", SECONDS)
    server = RunningServer(small, grace=0)
    server.wait_loaded()
    waiting = Later(server, guided_regex=f"slow, stream {stream}", stream=stream)
    try:
        assert begun.wait(SECONDS)
        server.tell_to_end()
        server.join()
        refused = waiting.reply()
        assert (refused.status, refused.error["code"]) == (503, "shutdown")
    finally:
        go.set()


def test_the_end_amid_a_slow_upload(small: LLM) -> None:
    """It doesn't wait for as long as a body may take, but says so."""
    server = RunningServer(small, grace=0)
    server.wait_loaded()
    with socket.create_connection(("127.0.0.1", server.port), SECONDS) as connection:
        lines = (
            "POST /v1/completions HTTP/1.1",
            "Host: localhost",
            "Content-Type: application/json",
            "Content-Length: 5000",
        )
        connection.sendall("\r\n".join([*lines, "", '{"prompt": "']).encode())
        assert server.get("/health").status == 200  # so that the server has read that, too
        server.tell_to_end()
        server.join()
        reply = connection.recv(4096)
        assert reply.startswith(b"HTTP/1.1 503")
        assert b'"code":"shutdown"' in reply.replace(b" ", b"")


def test_log_lines_tell_how_it_ended(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "cutaway.server"):
        server.complete(prompt="The sea is", max_tokens=3, ignore_eos=True)
        server.complete(prompt="The sea is", max_tokens=3, ignore_eos=True, stream=True)
        server.complete(temperature=9)
        with server.connection("/v1/completions", {"prompt": "x", **LONG, "max_tokens": 250, "stream": True}):
            until(lambda: len(server.service.works) == 1, "it is there")
        until(lambda: len(caplog.records) == 4, "four lines")
    lines = [record.fields for record in caplog.records]  # type: ignore[attr-defined]
    assert [each["status"] for each in lines[:3]] == [200, 200, 400]
    for each in lines[:2]:
        assert (each["prompt_tokens"], each["generated_tokens"], each["finish"]) == (3, 3, "length")
    assert "prompt_tokens" not in lines[2]
    assert lines[3]["finish"] == "abort"
    assert "The sea" not in json.dumps([str(each) for each in lines])
