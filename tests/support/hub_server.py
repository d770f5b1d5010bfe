"""A Hugging Face hub on the loopback interface: its file API, and its faults on demand.

Repositories with files go in; out comes an address that the real client can be pointed to with HF_ENDPOINT. Large files
are answered as the hub answers them: a redirect to another host, which knows ranges. Source: the hub's API as its
client uses it.
"""

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_of_the_tests"


@dataclass
class Repository:
    """A repository at one commit. Files of ``lfs_bytes`` and more are large ones."""

    files: dict[str, bytes]
    commit: str = COMMIT
    private: bool = False
    gated: bool = False
    lfs_bytes: int = 1000

    def is_large(self, name: str) -> bool:
        return len(self.files[name]) >= self.lfs_bytes


@dataclass
class Faults:
    """What goes wrong, and how often."""

    breaks_after: int | None = None  # bytes of each answer about a large file
    breaks: int = 0  # times; -1 is always
    stalls_after: int | None = None  # bytes
    status: int | None = None  # of every answer
    html: bool = False  # every answer is a page
    other_bytes: dict[str, bytes] = field(default_factory=dict)  # sent in place of the file
    ignores_ranges: bool = False
    tag: str | None = None  # of every file, in place of its digest
    listing: dict[str, Any] = field(default_factory=dict)  # of every file listed, in place of the truth


class HubServer:
    """Use as a context manager."""

    def __init__(self, repositories: Mapping[str, Repository]) -> None:
        self.repositories = dict(repositories)
        self.faults = Faults()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.go_on = threading.Event()
        self.stalled = threading.Event()
        owner = self

        class Handler(_Handler):
            hub = owner

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        # Another name of the same machine, so that the client sees another host.
        self.storage = f"http://localhost:{self.port}"

    def __enter__(self) -> "HubServer":
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()

    def seen(self, pattern: str, method: str = "GET") -> list[dict[str, str]]:
        """The headers of the requests of this method whose path matches."""
        return [headers for verb, path, headers in self.requests if verb == method and re.search(pattern, path)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubServer

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
        faults = self.hub.faults
        if faults.html:
            self._send(
                200, b"<!DOCTYPE html><html>welcome to this hotel's network</html>", {"Content-Type": "text/html"}
            )
        elif faults.status is not None:
            self._send(faults.status, b"{}", {})
        elif match := re.fullmatch(r"/api/models/(?P<repo>.+?)(/revision/(?P<revision>.+))?", path):
            if repository := self._admitted(match["repo"]):
                self._send(200, json.dumps(_description(match["repo"], repository, faults.listing)).encode(), {})
        elif match := re.fullmatch(r"/(?P<repo>[^/]+/[^/]+|[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)", path):
            if repository := self._admitted(match["repo"]):
                self._resolve(repository, match["name"])
        elif match := re.fullmatch(r"/storage/(?P<repo>.+)/(?P<sha>[0-9a-f]{64})", path):
            repository = self.hub.repositories[match["repo"]]
            name = next(n for n, data in repository.files.items() if hashlib.sha256(data).hexdigest() == match["sha"])
            self._send_large(faults.other_bytes.get(name, repository.files[name]))
        else:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})

    def _admitted(self, name: str) -> Repository | None:
        """The repository, if this request may know of it."""
        signed_in = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if self.headers.get("Authorization") and not signed_in:
            self._send(401, b"", {"X-Error-Message": "Invalid credentials in Authorization header"})
            return None
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and not signed_in):
            self._send(404 if signed_in else 401, b"", {"X-Error-Code": "RepoNotFound"})
            return None
        return repository

    def _resolve(self, repository: Repository, name: str) -> None:
        if repository.gated and not self.headers.get("Authorization"):
            self._send(401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
            return
        if name not in repository.files:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": repository.commit})
            return
        data = repository.files[name]
        headers = {"X-Repo-Commit": repository.commit}
        if repository.is_large(name):
            digest = hashlib.sha256(data).hexdigest()
            repo = next(key for key, value in self.hub.repositories.items() if value is repository)
            headers |= {
                "X-Linked-Etag": f'"{digest}"',
                "X-Linked-Size": str(len(data)),
                "Location": f"{self.hub.storage}/storage/{repo}/{digest}",
            }
            if self.hub.faults.tag is not None:
                headers["X-Linked-Etag"] = self.hub.faults.tag
            self._send(302, b"", headers)
        else:
            digest = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            self._send(200, data, {**headers, "ETag": self.hub.faults.tag or f'"{digest}"'})

    def _send_large(self, data: bytes) -> None:
        faults = self.hub.faults
        start = 0
        requested = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if requested and not faults.ignores_ranges:
            start = int(requested[1])
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        rest = data[start:]
        if faults.breaks and faults.breaks_after is not None:
            faults.breaks -= 1
            self.wfile.write(rest[: faults.breaks_after])
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
            return
        if faults.stalls_after is not None:
            self.wfile.write(rest[: faults.stalls_after])
            self.wfile.flush()
            self.hub.stalled.set()
            self.hub.go_on.wait()
            rest = rest[faults.stalls_after :]
        try:
            self.wfile.write(rest)
        except OSError:
            self.close_connection = True

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _description(name: str, repository: Repository, other: Mapping[str, Any]) -> dict[str, Any]:
    siblings = []
    for file, data in repository.files.items():
        sibling: dict[str, Any] = {"rfilename": file, "size": len(data), "blobId": "0" * 40}
        if repository.is_large(file):
            sibling["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        siblings.append(sibling | dict(other))
    gated = "manual" if repository.gated else False
    return {"id": name, "sha": repository.commit, "private": repository.private, "gated": gated, "siblings": siblings}
