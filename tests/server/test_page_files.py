"""The files of the pages: how they are sent, and that nothing in them is for others to use."""

import re
from pathlib import Path

import pytest

from cutaway.server.page.files import FILES, POLICY
from support.http_server import RunningServer

STATIC = Path(__file__).parents[2] / "src" / "cutaway" / "server" / "page" / "static"


def test_every_file_has_a_path() -> None:
    names = {path.name for path in STATIC.iterdir()}
    assert {"/" if name == "chat.html" else "/map" if name == "map.html" else f"/page/{name}" for name in names} == set(
        FILES
    )


@pytest.mark.parametrize("path", FILES)
def test_how_a_file_is_sent(server: RunningServer, path: str) -> None:
    reply = server.get(path)
    name = {"/": "chat.html", "/map": "map.html"}.get(path, path.rpartition("/")[2])
    assert (reply.status, reply.body) == (200, (STATIC / name).read_bytes())
    kind = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    assert reply.headers["content-type"].partition(";")[0] == kind[name.rpartition(".")[2]]
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-security-policy"] == POLICY
    assert reply.headers["cache-control"] == "no-cache"
    tag = reply.headers["etag"]
    for known in (tag, f'W/{tag}, "other"', "*"):
        again = server.get(path, **{"If-None-Match": known})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    assert server.get(path, **{"If-None-Match": '"other"'}).status == 200
    head = server.request("HEAD", path)
    assert (head.status, head.body, head.headers["etag"]) == (200, b"", tag)
    assert server.post(path, {}).status == 405


def test_the_tags_differ() -> None:
    assert len({file.tag for file in FILES.values()}) == len(FILES)


def test_what_is_not_a_file(server: RunningServer) -> None:
    for path in ("/page/", "/page/none.js", "/page/../map", "/page/%2e%2e/files.py", "/page/chat.html", "/map/", "//"):
        assert server.get(path).status == 404, path


def test_the_policy_lets_nothing_in() -> None:
    """Scripts and styles from files of the server alone, nothing from elsewhere, and no HTML made of text."""
    rules = {rule.split()[0]: rule.split()[1:] for rule in POLICY.split("; ")}
    assert rules["default-src"] == rules["form-action"] == rules["frame-ancestors"] == rules["base-uri"] == ["'none'"]
    for name in ("script-src", "style-src", "img-src", "connect-src"):
        assert rules[name] == ["'self'"]
    assert "unsafe" not in POLICY
    assert rules["require-trusted-types-for"] == ["'script'"]


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: str(path.name))
def test_what_a_file_must_not_have(path: Path) -> None:
    """The policy would forbid most of it, in browsers that know all of its rules."""
    text = path.read_text("utf-8")
    if path.suffix == ".html":
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|<script(?![^>]* src=)", text)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|localStorage", text
    )
    foreign = re.sub(r'xmlns="http://www\.w3\.org/2000/svg"', "", text)
    assert not re.search(r"https?://|@import|url\(|src=\"//", foreign)
