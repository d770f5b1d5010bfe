"""A server under load: many connections at once, each with a streamed completion, some of which leave before its end.

In: a GGUF file, with which Cutaway's server or a peer's is started on this machine; or the URL of one that runs here.
Out: throughput, time to the first token and between tokens, as a table and as JSON; of Cutaway's server also whether
a request or a block is left at the end, which is an error.

    .venv/bin/python benchmarks/server_load.py MODEL.gguf
    .venv/bin/python benchmarks/server_load.py MODEL.gguf --server xllamacpp --peer-python PYTHON
    .venv/bin/python benchmarks/server_load.py --url http://127.0.0.1:9000/v1 --model NAME

llama-cpp-python[server] answers one request at a time; xllamacpp is llama.cpp's own server as a wheel, which batches.
"""

import argparse
import asyncio
import contextlib
import json
import random
import resource
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

READY = 300.0  # seconds that a server may take to load its model
LAST = 30.0  # seconds within which nothing may be left
LOOPBACK = ("127.0.0.1", "localhost", "::1")
WORDS = [
    "sea",
    "river",
    "stone",
    "light",
    "winter",
    "table",
    "garden",
    "letter",
    "morning",
    "bridge",
    "music",
    "iron",
    "paper",
    "cloud",
    "window",
]

XLLAMACPP = """
import sys, time
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = sys.argv[1], ["127.0.0.1"], int(sys.argv[2])
params.n_parallel, params.n_ctx = int(sys.argv[3]), int(sys.argv[4])
server = xllamacpp.Server(params)
while True:
    time.sleep(3600)
"""


@dataclass
class Fate:
    """What became of one connection. Times are seconds since the load began."""

    sent: float = 0.0
    tokens: list[float] = field(default_factory=list)  # when each came
    end: str = ""


def prompt_of(number: int) -> str:
    """Forty words, different from the first on, so that no cache helps."""
    chance = random.Random(number)
    return f"{number}: " + " ".join(chance.choice(WORDS) for _ in range(40))


async def chunks(reader: asyncio.StreamReader, chunked: bool) -> Any:
    """The pieces of a reply's body."""
    while True:
        if not chunked:
            data = await reader.read(65536)
            if not data:
                return
            yield data
            continue
        size = int((await reader.readline()).split(b";")[0], 16)
        if size == 0:
            return
        yield await reader.readexactly(size)
        await reader.readexactly(2)


class Together:
    """Where so many wait for each other."""

    def __init__(self, count: int) -> None:
        self._missing, self._all_here = count, asyncio.Event()

    async def wait(self) -> None:
        """Until the last has come."""
        self._missing -= 1
        if self._missing == 0:
            self._all_here.set()
        await self._all_here.wait()


async def ask(options: argparse.Namespace, number: int, begin: float, all_open: Together) -> Fate:
    """One connection's life."""
    chance, fate = random.Random(number * 7919 + options.seed), Fate()
    leaves = chance.randrange(options.tokens) if chance.random() < options.leaving else None
    url = urlsplit(options.url)
    body = {
        "model": options.model,
        "prompt": prompt_of(number),
        "max_tokens": options.tokens,
        "temperature": 0,
        "stream": True,
    }
    data = json.dumps(body).encode()
    key = f"Authorization: Bearer {options.key}\r\n" if options.key else ""
    head = f"POST {url.path}/completions HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n{key}"
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        await all_open.wait()
        fate.sent = time.perf_counter() - begin
        writer.write(f"{head}Connection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        reply = await reader.readuntil(b"\r\n\r\n")
        status = int(reply.split(b" ", 2)[1])
        if status != 200:
            fate.end = f"refused by {status}"
            return fate
        rest = b""
        async for piece in chunks(reader, b"transfer-encoding: chunked" in reply.lower()):
            *events, rest = (rest + piece.replace(b"\r\n", b"\n")).split(b"\n\n")
            for event in events:
                if not event.startswith(b"data: ") or event == b"data: [DONE]":
                    continue
                choices = json.loads(event[len(b"data: ") :]).get("choices") or [{}]
                if choices[0].get("text"):
                    fate.tokens.append(time.perf_counter() - begin)
                if leaves is not None and len(fate.tokens) > leaves:
                    fate.end = "left"
                    return fate
        fate.end = "answered" if fate.tokens else "empty"
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        fate.end = f"failed: {type(error).__name__}"
    finally:
        writer.close()
    return fate


async def load(options: argparse.Namespace) -> tuple[list[Fate], float]:
    """The fates of all connections, and the seconds that it took."""
    begin, all_open = time.perf_counter(), Together(options.connections)
    asking = (ask(options, number, begin, all_open) for number in range(options.connections))
    fates = await asyncio.wait_for(asyncio.gather(*asking), options.seconds)
    return fates, time.perf_counter() - begin


def percentiles(values: list[float]) -> dict[str, float]:
    """Median and 99th, in milliseconds."""
    if len(values) < 2:
        return {"p50": 0.0, "p99": 0.0}
    hundredths = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": round(1000 * hundredths[49], 1), "p99": round(1000 * hundredths[98], 1)}


def summary(fates: list[Fate], seconds: float) -> dict[str, Any]:
    """The figures. Events with text are counted as tokens; a few tokens have none of their own."""
    tokens = [moment for fate in fates for moment in fate.tokens]
    first = [fate.tokens[0] - fate.sent for fate in fates if fate.tokens]
    gaps = [after - before for fate in fates for before, after in zip(fate.tokens, fate.tokens[1:], strict=False)]
    span = max(tokens) - min(fate.sent for fate in fates) if tokens else seconds
    return {
        "connections": len(fates),
        "outcomes": dict(Counter(fate.end for fate in fates)),
        "seconds": round(seconds, 2),
        "tokens": len(tokens),
        "tokens_per_second": round(len(tokens) / span, 1),
        "first_token_ms": percentiles(first),
        "between_tokens_ms": percentiles(gaps),
    }


def get(url: str, key: str) -> Any:
    """The JSON at an address."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(request, timeout=READY) as reply:
        return json.load(reply)


def left_over(options: argparse.Namespace) -> str:
    """What Cutaway's server still has, when it may have nothing; "" where all is gone."""
    end, root = time.monotonic() + LAST, options.url.rpartition("/v1")[0]
    while True:
        slots = get(f"{root}/slots", options.key)
        held = slots["blocks"]["held"]
        if not slots["sequences"] and not held and not sum(slots["others"].values()):
            return ""
        if time.monotonic() > end:
            return f"{len(slots['sequences'])} sequences and {held} blocks are left"
        time.sleep(0.1)


def command_of(options: argparse.Namespace, port: int) -> list[str]:
    """How the server is started: with as many answers at a time, and context for all of them."""
    model, running, context = str(options.gguf), str(options.running), 512
    if options.server == "llama-cpp-python":
        start = [options.peer_python, "-m", "llama_cpp.server", "--model", model, "--n_ctx", str(context)]
        # By default a newcomer ends the answer that is being written.
        return [*start, "--host", "127.0.0.1", "--port", str(port), "--interrupt_requests", "false"]
    if options.server == "xllamacpp":
        return [options.peer_python, "-c", XLLAMACPP, model, str(port), running, str(context * options.running)]
    start = [sys.executable, "-m", "cutaway", "serve", model, "--port", str(port), "--max-model-len", str(context)]
    return [*start, "--max-num-seqs", running, "--max-waiting", str(max(options.connections, 1))]


@contextlib.contextmanager
def started(options: argparse.Namespace) -> Iterator[None]:
    """The server, for this block; its URL and model become the options'."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options.url = f"http://127.0.0.1:{port}/v1"
    process = subprocess.Popen(command_of(options, port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + READY
        while True:
            try:
                options.model = get(f"{options.url}/models", "")["data"][0]["id"]
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"the server has not started: {' '.join(process.args)}") from None
                time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("gguf", nargs="?", type=Path, metavar="MODEL", help="a GGUF file: a server is started for it")
    parser.add_argument("--server", choices=("cutaway", "llama-cpp-python", "xllamacpp"), default="cutaway")
    parser.add_argument("--peer-python", default=sys.executable, help="the Python that has the peer's package")
    parser.add_argument("--url", help="instead: the base URL of a server that runs on this machine")
    parser.add_argument("--model", default="", help="its name for the model")
    parser.add_argument("--key", default="", help="its API key")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--running", type=int, default=64, help="answers that are computed together")
    parser.add_argument("--tokens", type=int, default=32, help="of an answer at most")
    parser.add_argument("--leaving", type=float, default=0.2, help="part of the clients that leave before the end")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1800.0, help="after which the load is given up")
    parser.add_argument("--json", type=Path, help="a file for the figures; - is standard output")
    options = parser.parse_args()
    if (options.gguf is None) == (options.url is None):
        parser.error("give a GGUF file, or --url")
    if options.url is not None and urlsplit(options.url).hostname not in LOOPBACK:
        parser.error(f"--url is {options.url}; it must be a server of this machine")
    return options


def main() -> None:
    options = parsed()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = options.connections + 100
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise SystemExit(f"this process may open {hard} files and needs {wanted}: ulimit -Hn {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))  # the server inherits it
    ours = options.url is None and options.server == "cutaway"
    with started(options) if options.url is None else contextlib.nullcontext():
        found = summary(*asyncio.run(load(options)))
        left = left_over(options) if ours else ""
    found = {"server": options.server if options.gguf else options.url, "running": options.running, **found}
    if options.json:
        text = json.dumps(found, indent=2) + "\n"
        sys.stdout.write(text) if str(options.json) == "-" else options.json.write_text(text, "utf-8")
    if str(options.json) != "-":
        for name, value in found.items():
            print(f"{name:18} {', '.join(f'{k} {v}' for k, v in value.items()) if isinstance(value, dict) else value}")
    failed = [end for end in found["outcomes"] if end not in ("answered", "left")]
    if left or failed:
        raise SystemExit(left or f"not all were answered: {', '.join(failed)}")


if __name__ == "__main__":
    main()
