"""A thousand open connections, some of which are closed at any moment: at the end nothing is left of them."""

import asyncio
import json
import random
import resource
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cutaway import LLM
from support.http_server import RunningServer, running, until
from support.long import LONG
from support.patience import SECONDS, finishes

CONNECTIONS = 1000 if LONG else 60


@pytest.fixture
def llm(smollm2_path: Path) -> Iterator[LLM]:
    """Sixty-four sequences run."""
    with LLM(smollm2_path, max_model_len=128, max_num_seqs=64, max_waiting=CONNECTIONS // 4) as loaded:
        yield loaded


@pytest.fixture
def enough_files() -> Iterator[None]:
    """Both ends of each connection are open files of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS + 200
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this process may open {hard} files and needs {wanted}; raise it with ulimit -Hn {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def ask(server: RunningServer, number: int, together: Callable[[], Awaitable[None]], want: dict[str, Any]) -> str:
    """One connection's life: what became of it."""
    chance = random.Random(number)
    prompt, stream = f"{number % 7} and {number % 7} make", number % 2 == 0
    body: dict[str, Any] = {"prompt": prompt, "temperature": 0, "max_tokens": 6, "ignore_eos": True, "stream": stream}
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        await together()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(data)}\r\n"
        )
        sent = head.encode() + b"Content-Type: application/json\r\n\r\n" + data
        if chance.random() < 0.1:
            writer.write(sent[: chance.randrange(len(sent))])
            await writer.drain()
            return "left while asking"
        writer.write(sent)
        if chance.random() < 0.3:
            try:
                await asyncio.wait_for(reader.read(chance.randrange(1, 2000)), chance.random() * 2)
            except asyncio.TimeoutError:
                return "left while waiting"
            return "left while reading"
        reply = await reader.read()
    finally:
        writer.close()
    status = int(reply[9:12])
    if status == 429:
        assert b"retry-after" in reply
        return "refused"
    assert status == 200, reply
    content = reply.partition(b"\r\n\r\n")[2]
    if stream:
        events = [line.partition(b"data: ")[2] for line in content.splitlines() if line.startswith(b"data: ")]
        assert events[-1] == b"[DONE]"
        text = "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])
    else:
        text = json.loads(content)["choices"][0]["text"]
    assert text == want[prompt]["text"]
    return "answered"


@pytest.mark.usefixtures("enough_files")
def test_many_connections(llm: LLM) -> None:
    prompts = {f"{number % 7} and {number % 7} make" for number in range(7)}
    with running(llm) as server:
        want = {
            prompt: server.complete(prompt=prompt, temperature=0, max_tokens=6, ignore_eos=True).json["choices"][0]
            for prompt in prompts
        }
        tasks = server.tasks()

        async def main() -> Counter[str]:
            arrived, all_here = 0, asyncio.Event()

            async def together() -> None:
                nonlocal arrived
                arrived += 1
                if arrived == CONNECTIONS:
                    all_here.set()
                await all_here.wait()

            asking = (ask(server, number, together, want) for number in range(CONNECTIONS))
            return Counter(await asyncio.gather(*asking))

        outcomes = finishes(lambda: asyncio.run(main()))
        assert outcomes["answered"] > CONNECTIONS / 10
        assert outcomes["left while asking"] > 0
        assert outcomes["left while waiting"] + outcomes["left while reading"] > 0
        until(lambda: len(server.service.works) == 0, "no work is left")
        until(lambda: server.tasks() <= tasks, "no task is left")
        core = llm.engine().call(lambda core: (core.check(), len(core.generations()))).result(SECONDS)
        assert core == (None, 0)
        last = server.get("/slots").json
        assert last["blocks"]["held"] == 0
        assert server.complete(max_tokens=1).status == 200
