"""Clients that send drop by drop, or nothing: each connection has its limit of time, and others don't notice."""

import json
import socket
import time
from collections.abc import Iterator

import pytest

from cutaway import LLM
from cutaway.server.http import body_time
from cutaway.server.http.body_time import PATIENCE, BodyTime
from cutaway.server.http.connection import Connection
from support.gate import gated
from support.http_server import RunningServer, running, until
from support.patience import SECONDS

SHORT = 0.4  # seconds: the limits in these tests
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"prompt": "x", "max_tokens": 1}'


@pytest.fixture
def impatient(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningServer]:
    """A server with short limits."""
    monkeypatch.setattr(Connection, "patience", SHORT)
    monkeypatch.setattr(body_time, "PATIENCE", SHORT)
    with running(llm) as started:
        yield started


def dribbled(server: RunningServer, start: bytes, rest: bytes = b"") -> bytes:
    """What comes back on a connection where the start is sent at once, and the rest byte by byte until it is closed."""
    with socket.create_connection(("127.0.0.1", server.port), SECONDS) as connection:
        connection.sendall(start)
        connection.settimeout(SHORT / 8)
        found = b""
        for place in range(10_000):
            try:
                connection.sendall(rest[place : place + 1])
                data = connection.recv(65536)
            except TimeoutError:
                continue
            except (ConnectionResetError, BrokenPipeError):
                return found
            if not data:
                return found
            found += data
    raise AssertionError("it is never closed")


def error(reply: bytes) -> str:
    """The code of the error that a reply is."""
    code: str = json.loads(reply.partition(b"\r\n\r\n")[2])["error"]["code"]
    return code


def test_a_head_that_has_no_end(impatient: RunningServer) -> None:
    for start, rest in ((HEAD, b""), (b"", HEAD + b"X: " + b"y" * 9000), (b"G", b"")):
        reply = dribbled(impatient, start, rest)
        assert reply.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert error(reply) == "head_too_slow"
        assert b"connection: close" in reply


def test_a_connection_without_a_word(impatient: RunningServer) -> None:
    """It is closed without one."""
    assert dribbled(impatient, b"") == b""


def test_a_body_that_has_no_end(impatient: RunningServer) -> None:
    for length in (b"Content-Length: 5000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n5000\r\n"):
        for start, rest in ((b"", b" " * 5000), (b'{"prompt": "', b"x" * 5000), (b"", b"")):
            reply = dribbled(impatient, HEAD + length + start, rest)
            assert reply.startswith(b"HTTP/1.1 408"), reply
            assert error(reply) == "body_too_slow"
            assert b"connection: close" in reply


def test_the_rest_of_a_body_that_nobody_wants(impatient: RunningServer) -> None:
    """After the refusal it can't hold the connection either."""
    head = HEAD.replace(b"application/json", b"text/plain") + b"Content-Length: 5000\r\n\r\n"
    reply = dribbled(impatient, head, b" " * 5000)
    assert reply.startswith(b"HTTP/1.1 415")
    assert reply.count(b"HTTP/1.1") == 1


def test_a_second_request_that_has_no_end(impatient: RunningServer) -> None:
    """On a connection that has had its answer."""
    first = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    reply = dribbled(impatient, first + HEAD)
    assert reply.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 408" in reply


def test_a_connection_may_be_idle_between_requests(impatient: RunningServer) -> None:
    """Longer than a head may take."""
    with socket.create_connection(("127.0.0.1", impatient.port), SECONDS) as connection:
        for _ in range(2):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            reply = b""
            while not reply.endswith(b"}"):
                data = connection.recv(4096)
                assert data
                reply += data
            assert reply.startswith(b"HTTP/1.1 200")
            time.sleep(2 * SHORT)


def test_an_answer_may_take_its_time(llm: LLM, impatient: RunningServer) -> None:
    """The limits are of what the client sends."""
    body = {"prompt": "x", "max_tokens": 2, "stream": True}
    with gated(llm) as gate, impatient.connection("/v1/completions", body) as connection:
        until(lambda: len(impatient.service.works) == 1, "it is there")
        time.sleep(2 * SHORT)
        gate.open()
        reply = b""
        while b"[DONE]" not in reply:
            data = connection.recv(65536)
            assert data
            reply += data


def test_others_are_served_meanwhile(impatient: RunningServer) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port), SECONDS) as slow:
        slow.sendall(HEAD)
        assert impatient.get("/health").status == 200
        assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_the_limit_grows_with_the_body() -> None:
    """Half a minute, and a second for each 16 KiB: a body of 4 MiB has some five minutes."""
    import asyncio

    async def main(sizes: list[int], step: float) -> tuple[int, float]:
        now = 0.0
        left = list(sizes)

        async def receive() -> dict[str, object]:
            nonlocal now
            now += step
            return {"type": "http.request", "body": bytes(left.pop(0)), "more_body": bool(left)}

        count = 0

        async def app(scope: object, receive: object, send: object) -> None:
            nonlocal count
            while (await receive())["more_body"]:  # type: ignore[operator]
                count += 1

        timed = BodyTime(app, asyncio.Event(), clock=lambda: now)  # type: ignore[arg-type]
        await timed({"type": "http"}, receive, None)  # type: ignore[arg-type]
        return count, now

    large = [16 << 10] * 256
    assert asyncio.run(main(large, 1.0)) == (255, 256.0)
    assert asyncio.run(main([1] * 10, PATIENCE / 11))[0] == 9


def test_bytes_that_are_no_http(server: RunningServer) -> None:
    """Are told so in the shape of all errors."""
    for data in (
        b"\x16\x03\x01\x02\x00hello\r\n\r\n",
        b"GET /\r\n\r\n",
        HEAD + b"Content-Length: x\r\n\r\n",
        b"A" * 70_000,
    ):
        with socket.create_connection(("127.0.0.1", server.port), SECONDS) as connection:
            connection.sendall(data)
            reply = b""
            while piece := connection.recv(65536):
                reply += piece
        assert reply.startswith(b"HTTP/1.1 400 Bad Request"), reply
        assert error(reply) == "no_http"
    assert server.get("/health").status == 200
