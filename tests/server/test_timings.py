"""What a request took, in its reply; what all that runs takes, by `/ledger`."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cutaway import LLM
from cutaway.server.timings import Timings
from support.http_server import RunningServer, running, until
from support.patience import SECONDS

CHAT = {
    "messages": [{"role": "user", "content": "Name a river."}],
    "max_tokens": 6,
    "temperature": 0,
    "ignore_eos": True,
}


@pytest.fixture(scope="module")
def timed(llm: LLM) -> Iterator[RunningServer]:
    with running(llm, timings=True) as started:
        yield started


def nobody_watches(llm: LLM) -> None:
    """Soon: the work behind a reply ends when it has been sent."""
    until(lambda: not llm.engine().call(lambda core: list(core.observers)).result(), "nobody watches the steps")


def check_ledger(ledger: dict[str, Any], outputs: int) -> None:
    assert ledger["outputs"] == outputs
    rows = {row["name"]: row for row in ledger["operations"]}
    assert rows["qkv"]["seconds"] > 0
    assert rows["qkv"]["int8_operations"] == 30 * 2 * ledger["tokens"] * 576 * 960
    assert 0 < rows["logits"]["of_limit"] < 20
    assert sum(row["seconds"] for row in ledger["operations"]) == pytest.approx(ledger["seconds"])
    assert ledger["limits"]["stream"]["best"] > 1e8


def test_a_chat_s_timings(timed: RunningServer, llm: LLM) -> None:
    reply = timed.post("/v1/chat/completions", {**CHAT, "return_timings": True}).json
    check_ledger(reply["cutaway"]["timings"], 6)
    assert reply["cutaway"]["timings"]["steps"] == 6
    assert "parameters" not in reply["cutaway"]
    both = timed.post("/v1/chat/completions", {**CHAT, "return_timings": True, "return_parameters": True}).json
    assert set(both["cutaway"]) >= {"parameters", "timings"}
    assert both["choices"][0]["message"] == reply["choices"][0]["message"]
    assert "cutaway" not in timed.post("/v1/chat/completions", CHAT).json
    nobody_watches(llm)


def test_several_prompts_are_one_request(timed: RunningServer) -> None:
    prompts = [[2001, 300, 301], [3001, 400, 401, 402]]  # they begin as nothing that was computed before
    body = {"prompt": prompts, "max_tokens": 3, "ignore_eos": True, "return_timings": True}
    ledger = timed.post("/v1/completions", body).json["cutaway"]["timings"]
    check_ledger(ledger, 6)
    assert ledger["tokens"] == 3 + 4 + 2 * 2


def test_a_stream_ends_with_them(timed: RunningServer, llm: LLM) -> None:
    events = timed.post("/v1/chat/completions", {**CHAT, "stream": True, "return_timings": True}).events
    found = [event["cutaway"]["timings"] for event in events if event != "[DONE]" and "cutaway" in event]
    assert len(found) == 1
    check_ledger(found[0], 6)
    nobody_watches(llm)


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_an_embedding_s(timed: RunningServer, llm: LLM, pooling: str) -> None:
    """It has no logits: of the operations behind the layers it takes no part. Two texts are one request."""
    body = {"input": [[2002, 310, 311], [3002, 410, 411, 412]], "pooling": pooling}
    said = timed.post("/v1/embeddings", {**body, "return_timings": True}).json
    ledger = said["cutaway"]["timings"]
    assert (ledger["outputs"], ledger["tokens"]) == (0, 7)
    rows = {row["name"]: row for row in ledger["operations"]}
    assert rows["qkv"]["int8_operations"] == 30 * 2 * 7 * 576 * 960
    assert rows["qkv"]["seconds"] > 0
    plain = timed.post("/v1/embeddings", body).json
    assert plain["data"] == said["data"]
    assert "timings" not in plain["cutaway"]
    nobody_watches(llm)


def test_a_server_without_them_says_how_to_have_them(server: RunningServer, llm: LLM) -> None:
    reply = server.post("/v1/chat/completions", {**CHAT, "return_timings": True})
    assert reply.status == 400
    assert (reply.error["param"], reply.error["code"]) == ("return_timings", "timings_off")
    assert "--timings" in reply.error["message"]
    for path, body in (
        ("/v1/embeddings", {"input": "x"}),
        ("/v1/responses", {"input": "x"}),
        ("/v1/messages", {"messages": CHAT["messages"], "max_tokens": 1}),
    ):
        refused = server.post(path, {**body, "return_timings": True})
        assert (refused.status, "--timings" in refused.json["error"]["message"]) == (400, True)
    assert server.get("/ledger").status == 400
    nobody_watches(llm)


def test_what_is_refused_is_not_watched(timed: RunningServer, llm: LLM) -> None:
    body = {"prompt": [1, 2], "bad_words": ["x" * 70_000], "return_timings": True, "max_tokens": 1, "n": 10_000}
    assert timed.post("/v1/completions", body).status == 400
    nobody_watches(llm)


def test_all_for_a_while(timed: RunningServer, llm: LLM) -> None:
    asked = threading.Thread(target=lambda: timed.post("/v1/chat/completions", {**CHAT, "max_tokens": 200}))
    asked.start()
    ledger = timed.get("/ledger?seconds=0.5").json
    asked.join()
    assert ledger["interval"] == 0.5
    assert ledger["steps"] > 0
    check_ledger(ledger, ledger["outputs"])
    nobody_watches(llm)
    idle = timed.get("/ledger?seconds=0.01").json
    assert (idle["steps"], idle["seconds"]) == (0, 0)


def test_who_leaves_while_they_begin_is_not_watched(timed: RunningServer, llm: LLM) -> None:
    """The engine begins, and nobody is there to be told."""
    meter = timed.service.model.meter
    assert meter is not None

    async def leave() -> None:
        go = threading.Event()
        llm.engine().call(lambda core: go.wait(SECONDS))
        beginning = asyncio.ensure_future(Timings.begin(llm, meter))
        await asyncio.sleep(0)  # it has asked
        go.set()
        llm.engine().call(lambda core: len(core.observers)).result()  # and has been answered; we haven't heard of it
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning

    asyncio.run(leave())
    nobody_watches(llm)


def test_a_ledger_ends_with_the_server(llm: LLM) -> None:
    with running(llm, timings=True, grace=0) as started:
        replies: list[Any] = []
        asked = threading.Thread(target=lambda: replies.append(started.get("/ledger?seconds=60")))
        asked.start()
        until(lambda: bool(llm.engine().call(lambda core: list(core.observers)).result()), "it looks")
        started.tell_to_end()
        asked.join(SECONDS)
    assert (replies[0].status, replies[0].error["code"]) == (503, "shutdown")
    nobody_watches(llm)


@pytest.mark.parametrize("seconds", ["0", "61", "nan", "soon"])
def test_other_intervals_are_refused(timed: RunningServer, seconds: str) -> None:
    assert timed.get(f"/ledger?seconds={seconds}").status in (400, 422)


def test_tapped_steps_have_no_clocks(smollm2_path: Path) -> None:
    with (
        LLM(smollm2_path, threads=1, max_model_len=64, max_tap_bytes=1_000_000) as small,
        running(small, timings=True, max_tap_bytes=1_000_000) as started,
    ):
        reply = started.complete(max_tokens=1, taps=["layers.3.resid"], return_timings=True)
        assert (reply.status, reply.error["code"]) == (400, "timings_of_taps")
        nobody_watches(small)
