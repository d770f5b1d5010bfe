"""Work that ends when the client leaves: which of the two comes first, and what is left of either."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI

from cutaway.server.http.asgi import Message
from cutaway.server.http.disconnect import ClientLeftError, while_connected
from cutaway.server.http.route import Route


class Client:
    """Sends an empty rest of a body, and leaves when it is told to."""

    def __init__(self) -> None:
        self.leave = asyncio.Event()
        self.asked = 0

    async def receive(self) -> Message:
        self.asked += 1
        if self.asked == 1:
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.leave.wait()
        return {"type": "http.disconnect"}


def run(main: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    """The coroutine, and then no task is left."""

    async def checked() -> None:
        await asyncio.wait_for(main(Client()), 60)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(checked())


def test_work_that_is_done() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    async def main(client: Client) -> None:
        assert await while_connected(client.receive, work()) == "done"

    run(main)


def test_work_that_fails() -> None:
    async def work() -> None:
        raise KeyError("of the test")

    async def main(client: Client) -> None:
        with pytest.raises(KeyError, match="of the test"):
            await while_connected(client.receive, work())

    run(main)


def test_a_client_that_leaves() -> None:
    """The work is cancelled, and has ended, its end included, when the error comes."""
    ended: list[str] = []

    async def main(client: Client) -> None:
        async def work() -> None:
            client.leave.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.01)
                ended.append("work")

        with pytest.raises(ClientLeftError) as error:
            await while_connected(client.receive, work())
        assert error.value.status_code == 499
        assert ended == ["work"]

    run(main)


def test_work_that_is_done_as_the_client_leaves() -> None:
    """Its result is not lost: what it has begun is its owner's to end."""

    async def main(client: Client) -> None:
        async def work() -> str:
            try:
                client.leave.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "in time"
            return "never"

        assert await while_connected(client.receive, work()) == "in time"

    run(main)


def test_a_server_that_is_cancelled() -> None:
    """As at the end of the grace time."""
    ended: list[str] = []

    async def main(client: Client) -> None:
        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("work")

        task = asyncio.create_task(while_connected(client.receive, work()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["work"]

    run(main)


@pytest.mark.parametrize("begun", [b"", b"{", b'{"prompt": "x"'])
def test_a_client_that_leaves_within_its_body(begun: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """That is no failure of the server's: it has the status of those who leave, and no traceback."""
    router = APIRouter(route_class=Route)

    @router.post("/")
    async def take(body: dict[str, Any]) -> None:
        raise AssertionError(body)

    app, sent = FastAPI(), list[Message]()
    app.include_router(router)
    messages: list[Message] = [{"type": "http.request", "body": begun, "more_body": True}, {"type": "http.disconnect"}]
    headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 499
    assert not caplog.records
