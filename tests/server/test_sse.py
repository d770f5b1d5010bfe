"""Streams of events alone: comments in silence, errors, and the end, each in its form."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from cutaway.errors import InvalidRequestError
from cutaway.server.http.asgi import Message
from cutaway.server.http.sse import COMMENT, DONE, EventStream, event

Chunks = AsyncGenerator[dict[str, Any], None]


class Client:
    """What it has got; it stays unless it is told to leave."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.leave = asyncio.Event()
        self.got = asyncio.Event()  # something
        self.ended = 0
        self.facts: dict[str, object] = {}

    async def send(self, message: Message) -> None:
        self.messages.append(message)
        self.got.set()

    async def receive(self) -> Message:
        await self.leave.wait()
        return {"type": "http.disconnect"}

    def end(self) -> None:
        self.ended += 1

    @property
    def bodies(self) -> list[bytes]:
        return [each["body"] for each in self.messages[1:]]


def run(chunks: Callable[[Client], Chunks], silence: float = 60) -> Client:
    """A stream of these chunks, to its end."""

    async def main() -> Client:
        client = Client()
        stream = EventStream(chunks(client), client.end, silence)
        await asyncio.wait_for(stream({"state": {"facts": client.facts}}, client.receive, client.send), 60)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return client

    return asyncio.run(main())


def test_events_and_their_end() -> None:
    async def chunks(client: Client) -> Chunks:
        for number in range(3):
            yield {"n": number, "text": "a\nb\u2028ü"}

    client = run(chunks)
    assert client.messages[0]["status"] == 200
    assert client.bodies == [*(event({"n": number, "text": "a\nb\u2028ü"}) for number in range(3)), DONE]
    assert all(body.count(b"\n") == 2 for body in client.bodies), "each is one line, and an empty one"
    assert [each["more_body"] for each in client.messages[1:]] == [True, True, True, False]
    assert (client.ended, client.facts) == (1, {})


@pytest.mark.parametrize(
    ("error", "words"),
    [(InvalidRequestError("too much", "n"), b"too much"), (KeyError("k"), b"failed at this request")],
)
def test_an_error_is_the_last_event(error: Exception, words: bytes) -> None:
    async def chunks(client: Client) -> Chunks:
        yield {"n": 0}
        raise error

    client = run(chunks)
    assert client.bodies[0] == event({"n": 0})
    assert client.bodies[1].startswith(b'data: {"error":{"message":"')
    assert words in client.bodies[1]
    assert len(client.bodies) == 2
    assert client.messages[-1]["more_body"] is False
    assert client.ended == 1


def test_comments_in_silence() -> None:
    """Before the first chunk and between two; none at the end."""

    async def chunks(client: Client) -> Chunks:
        for number in range(2):
            while not client.messages or client.messages[-1].get("body") != COMMENT:
                client.got.clear()
                await client.got.wait()
            yield {"n": number}

    client = run(chunks, silence=0.005)
    without = [body for body in client.bodies if body != COMMENT]
    assert without == [event({"n": 0}), event({"n": 1}), DONE]
    assert client.bodies[0] == COMMENT
    assert client.bodies[client.bodies.index(event({"n": 1})) - 1] == COMMENT
    assert client.bodies[-1] == DONE


def test_no_comments_while_chunks_come() -> None:
    async def chunks(client: Client) -> Chunks:
        for number in range(5):
            await asyncio.sleep(0)
            yield {"n": number}

    assert COMMENT not in run(chunks, silence=30).bodies


def test_a_client_that_leaves_closes_the_chunks() -> None:
    closed: list[str] = []

    async def chunks(client: Client) -> Chunks:
        try:
            yield {"n": 0}
            client.leave.set()
            await asyncio.Event().wait()
        finally:
            closed.append("chunks")

    client = run(chunks)
    assert closed == ["chunks"]
    assert client.bodies == [event({"n": 0})]
    assert (client.ended, client.facts) == (1, {"client_left": True})
