"""By which names the server may be called, so that no page of anybody's reads what it answers."""

from typing import Any

import pytest

from cutaway import LLM
from cutaway.errors import InvalidRequestError
from cutaway.server.http.hosts import host_name, is_address, is_loopback
from cutaway.server.settings import ServerSettings
from support.http_server import Reply, RunningServer, running

OURS = [
    "localhost",
    "LocalHost:8000",
    "localhost.",
    "models.localhost:1",
    "127.0.0.1",
    "127.0.0.1:8000",
    "127.8.8.8",
    "[::1]",
    "[::1]:8000",
    "192.168.1.5:8000",  # a forwarded port; no page's name is an address
    "[fe80::1]:80",
]
OTHERS = [
    "evil.example",
    "evil.example:8000",
    "localhost.evil.example",
    "127.0.0.1.evil.example:8000",
    "evil-localhost",
    "notlocalhost",
    "127.0.0.1@evil.example",
    "[evil.example]:8000",
    "127.1",  # an address by another spelling: browsers write it out
    "x",
]


def as_host(server: RunningServer, host: str, path: str = "/v1/models", method: str = "GET", **headers: str) -> Reply:
    """A request with this Host header."""
    return server.request(method, path, headers={"Host": host, **headers})


@pytest.mark.parametrize("host", OURS)
def test_names_that_lead_here(server: RunningServer, host: str) -> None:
    assert as_host(server, host).status == 200


@pytest.mark.parametrize("host", OTHERS)
@pytest.mark.parametrize("path", ["/v1/models", "/", "/health", "/nothing"])
def test_names_that_a_page_could_have(server: RunningServer, host: str, path: str) -> None:
    refused = as_host(server, host, path)
    assert (refused.status, refused.error["code"]) == (403, "host_not_allowed")
    assert repr(host) in refused.error["message"]
    assert f"--allowed-host {host_name(host)}" in refused.error["message"]


def test_nothing_is_computed_for_them(server: RunningServer) -> None:
    body = b'{"prompt": "x", "max_tokens": 1}'
    headers = {"Host": "evil.example", "Content-Type": "application/json"}
    before = server.get("/metrics").body
    assert server.request("POST", "/v1/completions", body, headers).status == 403
    assert server.get("/metrics").body == before
    asks = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    assert as_host(server, "evil.example", "/v1/completions", "OPTIONS", **asks).status == 403


@pytest.mark.parametrize(
    ("options", "taken", "refused"),
    [
        (
            {"allowed_hosts": ("models.example.org",)},
            ["Models.Example.org:80", "localhost", "10.0.0.1"],
            ["example.org"],
        ),
        ({"allowed_hosts": ("*",)}, ["evil.example"], []),
        ({"host": "0.0.0.0"}, ["anything.example", "localhost"], []),
        ({"host": "0.0.0.0", "allowed_hosts": ("a.example", "b.example")}, ["b.example", "localhost"], ["c.example"]),
        ({"host": "::1"}, ["localhost"], ["c.example"]),
        ({"host": "localhost", "cors_origins": ("*",)}, ["localhost"], ["c.example"]),
        ({"api_keys": ("key",)}, [], ["c.example"]),
    ],
    ids=str,
)
def test_further_names(llm: LLM, options: dict[str, Any], taken: list[str], refused: list[str]) -> None:
    """Those that are named; any, where the server is there for other machines and nobody has named one."""
    with running(llm, **options) as server:
        assert [as_host(server, host).status for host in taken] == [200] * len(taken)
        assert [as_host(server, host).status for host in refused] == [403] * len(refused)


@pytest.mark.parametrize("name", ["", "http://a.example", "a b", "me@a.example", "mödels.example", "a.example/x"])
def test_no_names(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="an allowed host is"):
        ServerSettings(allowed_hosts=(name,))


def test_parts_of_a_host() -> None:
    assert [host_name(each) for each in ("A.b:80", "a.", "[::1]:8", "::")] == ["a.b", "a", "::1", ""]
    assert [is_address(each) for each in ("::1", "1.2.3.4", "1.2.3", "a", "")] == [True, True, False, False, False]
    loopback = ("127.0.0.1", "127.9.9.9", "::1", "localhost", "0.0.0.0", "127.evil.example", "10.0.0.1")
    assert [is_loopback(each) for each in loopback] == [True, True, True, True, False, False, False]


@pytest.mark.parametrize("host", ["127.1", "2130706433", "LocalHost", "::ffff:127.0.0.1", "0:0:0:0:0:0:0:1"])
def test_other_spellings_of_an_address_of_this_machine_alone(host: str) -> None:
    """What counts is where the server listens, however that was written."""
    assert is_loopback(host)


def test_a_name_of_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian gives a machine's own name the address 127.0.1.1."""
    found = {"mine": "127.0.1.1", "theirs": "10.0.0.1", "mine6": "::1", "theirs6": "fe80::1%eth0"}
    monkeypatch.setattr(
        "cutaway.server.http.hosts.socket.getaddrinfo", lambda host, *_, **__: [(0, 0, 0, "", (found[host], 0))]
    )
    assert [is_loopback(each) for each in found] == [True, False, True, False]


@pytest.mark.parametrize("kind", ["text/plain", "text/plain;charset=UTF-8", "multipart/form-data; boundary=x", ""])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])
def test_what_a_page_may_send_without_asking(server: RunningServer, path: str, kind: str) -> None:
    """Texts and forms of any page reach any server; here they do nothing, and the page can't read why."""
    headers = {"Origin": "https://evil.example", "Content-Type": kind}
    refused = server.post(path, b'{"prompt": "x", "messages": [{"role": "user", "content": "x"}]}', headers)
    assert refused.status == 415
    assert "access-control-allow-origin" not in refused.headers
    asks = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    preflight = server.request("OPTIONS", path, headers={**asks, "Access-Control-Request-Headers": "content-type"})
    assert preflight.status == 405
    assert not [name for name in preflight.headers if name.startswith("access-control")]
