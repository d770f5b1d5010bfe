"""A server on a real loopback socket, in this process; and what clients say to it, byte by byte where it matters."""

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from cutaway.engine.llm import LLM
from cutaway.server.app import create_app
from cutaway.server.serve import HttpServer, listen
from cutaway.server.service import Service
from cutaway.server.settings import ServerSettings
from support.patience import SECONDS


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        """The body, which must be JSON by name and in fact."""
        assert self.headers["content-type"] == "application/json", self
        return json.loads(self.body, parse_constant=lambda name: pytest_fail(name))

    @property
    def error(self) -> Any:
        """The error, in OpenAI's shape and nothing beside it."""
        assert self.status >= 400, self
        assert set(self.json) == {"error"}
        assert set(self.json["error"]) == {"message", "type", "param", "code"}
        return self.json["error"]

    @property
    def events(self) -> list[Any]:
        """The events of a stream; "[DONE]" is one."""
        assert self.headers["content-type"].startswith("text/event-stream"), self
        *events, rest = self.body.decode("utf-8").split("\n\n")
        assert rest == ""
        assert all(each.startswith("data: ") and "\n" not in each for each in events), events
        texts = [each.removeprefix("data: ") for each in events]
        return [each if each == "[DONE]" else json.loads(each) for each in texts]


def pytest_fail(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


class RunningServer:
    """A server in a thread of its own. ``llm`` outlives it."""

    def __init__(self, llm: LLM | Callable[[], LLM], **settings: Any) -> None:
        """llm: or a function that loads it."""
        self.service = Service(ServerSettings(**settings))
        self._listening = listen("127.0.0.1", 0)
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._load: Callable[[], LLM] = (lambda: llm) if isinstance(llm, LLM) else llm
        self._server = HttpServer(create_app(self.service), self.service)
        self._loaded = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._thread.start()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        serving = asyncio.ensure_future(self._server.serve([self._listening]))
        try:
            await self.service.load(self._load)
        finally:
            self._loaded.set()
        await serving

    def wait_loaded(self) -> None:
        """Until the model is there."""
        assert self._loaded.wait(SECONDS)

    def tasks(self) -> int:
        """Tasks of its event loop, but for the one that counts them."""

        async def count() -> int:
            return len(asyncio.all_tasks()) - 1

        return asyncio.run_coroutine_threadsafe(count(), self._loop).result(SECONDS)

    def tell_to_end(self) -> None:
        """As SIGTERM does."""
        self._server.should_exit = True

    def join(self) -> None:
        """Until it has ended."""
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), "it hangs"

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, **more: Any
    ) -> Reply:
        """Ask, and read the whole reply. body: bytes as they are; anything else as JSON."""
        given = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})} if given is not None else dict(headers or {})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request(method, path, given, {k: v for k, v in sent.items() if v}, **more)
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, names, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        """GET."""
        return self.request("GET", path, headers=headers)

    def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Reply:
        """POST."""
        return self.request("POST", path, body, headers)

    def chat(self, **fields: Any) -> Reply:
        """A chat, about nothing unless messages are given."""
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], **fields})

    def complete(self, **fields: Any) -> Reply:
        """A completion."""
        return self.post("/v1/completions", {"prompt": "The sea is", **fields})

    @contextmanager
    def connection(self, path: str, body: Any) -> Iterator[socket.socket]:
        """A connection on which a request was sent, and nothing read."""
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}"
        with socket.create_connection(("127.0.0.1", self.port), SECONDS) as connected:
            connected.sendall(head.encode() + b"\r\nContent-Type: application/json\r\n\r\n" + content)
            yield connected


@contextmanager
def running(llm: LLM | Callable[[], LLM], **settings: Any) -> Iterator[RunningServer]:
    """A server for this block, its model loaded."""
    server = RunningServer(llm, **{"grace": 0, **settings})
    try:
        server.wait_loaded()
        yield server
    finally:
        server.tell_to_end()
        server.join()


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until it is so; AssertionError if it never is."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"it never came: {what}"
        time.sleep(0.005)
