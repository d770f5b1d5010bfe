"""Who may use the server, from where, and how much of it at once."""

import http.client
import json
import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from cutaway import LLM
from cutaway.server.http import body_limit
from cutaway.server.http.auth import client_of
from cutaway.server.page.files import FILES
from support.http_server import RunningServer, running, until
from support.patience import SECONDS

ROUTES = [
    ("GET", "/version"),
    ("GET", "/v1/models"),
    ("GET", "/openapi.json"),
    ("GET", "/nothing"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/responses"),
    ("GET", "/v1/responses/resp_1"),
    ("DELETE", "/v1/responses/resp_1"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"),
    ("GET", "/slots"),
    ("GET", "/metrics"),
    ("GET", "/page/none.js"),
    ("GET", "/page/"),
    ("GET", "//"),
    ("OPTIONS", "/v1/models"),
]


@pytest.fixture(scope="module")
def keyed(llm: LLM) -> Iterator[RunningServer]:
    """Two keys, a page that may use it, bodies of 2,000 bytes."""
    options: dict[str, Any] = {
        "api_keys": ("first-key", "second-key"),
        "cors_origins": ("https://page.example",),
        "max_body_size": 2000,
    }
    with running(llm, **options) as server:
        yield server


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "first-key"},
        {"Authorization": "Basic first-key"},
        {"Authorization": "Bearer first-key2"},
        {"Authorization": "Bearer first-ke"},
        {"Authorization": "Bearer FIRST-KEY"},
        {"Authorization": "Bearer first-key second-key"},
        {"Authorization": "Bearer \xfc\xff"},
        {"X-Api-Key": "wrong"},
    ],
    ids=str,
)
def test_without_a_key(keyed: RunningServer, method: str, path: str, headers: dict[str, str]) -> None:
    reply = keyed.request(method, path, headers=headers)
    assert reply.status == 401
    if path.startswith("/v1/messages"):
        assert reply.json["error"]["type"] == "authentication_error"
    else:
        assert reply.error["code"] == "invalid_api_key"
    assert reply.headers["www-authenticate"] == "Bearer"
    assert "first" not in reply.body.decode()


def test_with_a_key(keyed: RunningServer) -> None:
    for headers in (
        {"Authorization": "Bearer first-key"},
        {"Authorization": "bearer  second-key "},
        {"X-Api-Key": "first-key"},
    ):
        assert keyed.request("GET", "/v1/models", headers=headers).status == 200
    assert keyed.get("/health").status == 200
    assert keyed.get("/health", Authorization="Bearer wrong").status == 200


def test_pages_need_no_key(keyed: RunningServer) -> None:
    """Everybody has them who has this package: they have no data, and ask for it with the key of whoever looks."""
    for path in FILES:
        assert keyed.get(path).status == 200
        assert keyed.get(path, Authorization="Bearer wrong").status == 200


@pytest.mark.parametrize(
    ("path", "body", "count"),
    [
        ("/v1/completions", {"prompt": "TEXT", "max_tokens": 1}, ["prompt_tokens_details", "cached_tokens"]),
        ("/v1/responses", {"input": "TEXT", "max_output_tokens": 1}, ["input_tokens_details", "cached_tokens"]),
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": "TEXT"}], "max_tokens": 1},
            ["cache_read_input_tokens"],
        ),
    ],
)
def test_keys_share_nothing_in_the_prefix_cache(
    keyed: RunningServer, path: str, body: dict[str, Any], count: list[str]
) -> None:
    """So that the time that an answer takes tells nobody what others have asked."""
    secret = f"A secret for {path} that is long enough to fill some blocks of the cache: " * 6
    sent = json.dumps(body).replace("TEXT", secret).encode()

    def cached(key: str) -> int:
        found: Any = keyed.post(path, sent, {"Authorization": f"Bearer {key}"}).json["usage"]
        for name in count:
            found = found[name]
        return int(found)

    first = cached("first-key")  # what a template writes before the text may be there from another test
    assert first < 50
    assert cached("first-key") > first + 32
    assert cached("second-key") < 50


def test_a_key_is_in_no_log(keyed: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        key = {"Authorization": "Bearer first-key"}
        reply = keyed.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, key)

        def mine() -> list[dict[str, Any]]:
            fields = [record.fields for record in caplog.records if hasattr(record, "fields")]
            return [each for each in fields if each["request_id"] == reply.headers["x-request-id"]]

        until(lambda: len(mine()) == 1, "its line")
    (fields,) = mine()
    assert fields["key"] == client_of("first-key").name
    assert "first-key" not in str(fields)
    assert client_of("first-key").name != client_of("second-key").name


def test_pages_of_other_origins(keyed: RunningServer, server: RunningServer) -> None:
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    page, other = {"Origin": "https://page.example"}, {"Origin": "https://other.example"}
    allowed = keyed.request("OPTIONS", "/v1/chat/completions", headers={**page, **asks})
    assert allowed.status == 200, "a browser asks without the key"
    assert allowed.headers["access-control-allow-origin"] == "https://page.example"
    assert keyed.request("OPTIONS", "/v1/chat/completions", headers={**other, **asks}).status == 400
    refused = keyed.request("GET", "/v1/models", headers=page)
    assert refused.status == 401
    assert refused.headers["access-control-allow-origin"] == "https://page.example", "so that the page can read why"
    assert "access-control-allow-origin" not in keyed.request("GET", "/health", headers=other).headers
    assert "access-control-allow-origin" not in server.request("GET", "/health", headers=page).headers


def test_all_origins(llm: LLM) -> None:
    with running(llm, cors_origins=("*",)) as server:
        reply = server.get("/health", Origin="https://any.example")
        assert reply.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in reply.headers


def test_large_bodies(keyed: RunningServer) -> None:
    """Announced or not, nothing of them is kept."""
    key = {"Authorization": "Bearer first-key"}

    def body(size: int) -> bytes:
        filled = json.dumps({"max_tokens": 1, "prompt": ["x"], "user": ""}).encode()
        return filled.replace(b'"user": "', b'"user": "' + b"a" * (size - len(filled)))

    assert len(body(2000)) == 2000
    assert keyed.post("/v1/completions", body(2000), key).status == 200
    refused = keyed.post("/v1/completions", body(2001), key)
    assert (refused.status, refused.error["code"]) == (413, "body_too_large")
    assert "the body has 2001 bytes; the server takes 2000 at most" in refused.error["message"]
    for size, status in ((2000, 200), (2001, 413)):
        connection = http.client.HTTPConnection("127.0.0.1", keyed.port, timeout=SECONDS)
        data = body(size)
        pieces = [data[start : start + 300] for start in range(0, size, 300)]
        headers = {**key, "Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", iter(pieces), headers, encode_chunked=True)
        response = connection.getresponse()
        assert response.status == status
        assert (b"more than 2000 bytes" in response.read()) == (status == 413)
        connection.close()
    assert keyed.get("/health").status == 200


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize("announced", [False, True])
def test_who_writes_all_before_reading_finds_the_reply(keyed: RunningServer, announced: bool, closes: bool) -> None:
    """More than what the sockets hold, so that a connection that was closed early would break the writing."""
    body = b'{"prompt": "' + b"x" * (12 << 20) + b'"}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer first-key\r\n"
    head += b"Content-Type: application/json\r\n" + (b"Connection: close\r\n" if closes else b"")
    if announced:
        data = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    else:
        data = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", keyed.port), SECONDS) as connection:
        connection.sendall(data)
        reply = read_all(connection)
    assert reply.startswith(b"HTTP/1.1 413")
    assert b"the server takes 2000 at most" in reply


@pytest.mark.parametrize(
    "more", [b"Content-Length: 9000000000\r\n", b"Content-Length: 9000\r\nExpect: 100-continue\r\n"]
)
def test_what_is_far_too_large_or_asked_about_is_refused_at_once(keyed: RunningServer, more: bytes) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer first-key\r\n"
    with socket.create_connection(("127.0.0.1", keyed.port), SECONDS) as connection:
        connection.sendall(head + b"Content-Type: application/json\r\n" + more + b"\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 413"), "and nothing of the body was sent"


def test_a_rest_that_never_comes_is_not_waited_for(keyed: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limit, "PATIENCE", 0.1)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer first-key\r\n"
    head += b"Content-Type: application/json\r\n"
    for start in (b"Content-Length: 3000\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n9000\r\n" + b" " * 2001):
        with socket.create_connection(("127.0.0.1", keyed.port), SECONDS) as connection:
            connection.sendall(head + start)
            assert read_all(connection).startswith(b"HTTP/1.1 413")
    assert keyed.get("/health").status == 200


def read_all(connection: socket.socket) -> bytes:
    """Until the server closes the connection."""
    found = b""
    while data := connection.recv(65536):
        found += data
    return found


def test_a_body_that_never_comes(keyed: RunningServer) -> None:
    """Who announces more than is sent, and leaves, is no trouble."""
    connection = http.client.HTTPConnection("127.0.0.1", keyed.port, timeout=SECONDS)
    connection.putrequest("POST", "/v1/completions")
    for name, value in (
        ("Authorization", "Bearer first-key"),
        ("Content-Type", "application/json"),
        ("Content-Length", "500"),
    ):
        connection.putheader(name, value)
    connection.endheaders()
    connection.send(b'{"prompt": ')
    connection.close()
    assert keyed.get("/health").status == 200
