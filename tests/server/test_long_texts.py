"""Texts that are too long: they are refused before they are encoded, and nobody else waits meanwhile."""

import threading
from collections.abc import Iterator

import pytest

from cutaway import LLM
from support.http_server import Reply, RunningServer, running, until
from support.long import LONG
from support.patience import SECONDS, finishes

MEGABYTE = 1 << 20
SIZE = (10 if LONG else 4) * MEGABYTE
TEXTS = {
    "letters": "a" * SIZE,
    "words": "The sea is blue. " * (SIZE // 17),
    "spaces": " " * SIZE,
    "Chinese": "\u6d77" * (SIZE // 3),
    "line ends": "\n" * SIZE,
}


@pytest.fixture(scope="module")
def large(llm: LLM) -> Iterator[RunningServer]:
    """A server that takes bodies of 64 MiB."""
    with running(llm, max_body_size=64 * MEGABYTE) as started:
        yield started


@pytest.fixture
def nothing_is_encoded(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokenizer's model must not be asked for a text of a megabyte."""
    encode = llm.tokenizer._model.encode

    def checked(text: str, at_start: bool = True) -> list[int]:
        assert len(text) < MEGABYTE, "a long text is encoded"
        return encode(text, at_start)

    monkeypatch.setattr(llm.tokenizer._model, "encode", checked)


@pytest.mark.usefixtures("nothing_is_encoded")
@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_no_context_holds(large: RunningServer, llm: LLM, name: str) -> None:
    text = TEXTS[name]
    longest = max(len(llm.tokenizer.token_bytes(token)) for token in range(llm.tokenizer.vocab_size))
    size = len(text.encode())
    for path, body, param in (
        ("/v1/completions", {"prompt": text}, "prompt"),
        ("/v1/completions", {"prompt": ["short", text]}, "prompt[1]"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]}, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "system", "content": text}] * 2, "stream": True}, "messages"),
    ):
        refused = finishes(lambda: large.post(path, body))  # noqa: B023 - called here alone
        assert (refused.status, refused.error["param"]) == (400, param)
        assert refused.error["code"] == "context_length_exceeded"
        message = refused.error["message"]
        assert f"no token of this model more than {longest}" in message
        assert "the limit is 1024" in message
        if path == "/v1/completions":
            assert f"the prompt has {size} bytes" in message
            assert f"it is {-(-size // longest)} tokens at least" in message


def test_others_are_answered_while_a_text_is_encoded(
    large: RunningServer, llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many long texts as are encoded at a time, and more, which wait: all else goes on."""
    begun, may_end = threading.Semaphore(0), threading.Event()
    encode = llm.tokenizer._model.encode

    def slow(text: str, at_start: bool = True) -> list[int]:
        if text.startswith("slow"):
            begun.release()
            assert may_end.wait(SECONDS)
        return encode(text, at_start)

    monkeypatch.setattr(llm.tokenizer._model, "encode", slow)
    replies: list[Reply] = []
    asking = [
        threading.Thread(
            target=lambda: replies.append(large.post("/tokenize", {"prompt": "slow text"})), name=str(n), daemon=True
        )
        for n in range(6)
    ]
    for thread in asking[:3]:
        thread.start()
    for _ in range(3):
        assert begun.acquire(timeout=SECONDS)
    assert large.get("/health").status == 200
    assert large.complete(max_tokens=2).status == 200, "one place is left"
    for thread in asking[3:]:
        thread.start()
    assert begun.acquire(timeout=SECONDS)
    assert large.get("/health").status == 200
    assert replies == []
    may_end.set()
    for thread in asking:
        thread.join(SECONDS)
    assert [reply.status for reply in replies] == [200] * 6


def test_a_client_that_leaves_before_its_turn(
    large: RunningServer, llm: LLM, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its text is never encoded."""
    begun, may_end, seen = threading.Semaphore(0), threading.Event(), list[str]()
    encode = llm.tokenizer._model.encode

    def slow(text: str, at_start: bool = True) -> list[int]:
        seen.append(text)
        begun.release()
        assert may_end.wait(SECONDS)
        return encode(text, at_start)

    monkeypatch.setattr(llm.tokenizer._model, "encode", slow)
    first = [threading.Thread(target=lambda: large.complete(prompt="first", max_tokens=1), daemon=True) for _ in "1234"]
    for thread in first:
        thread.start()
    for _ in first:
        assert begun.acquire(timeout=SECONDS)
    with caplog.at_level("INFO", "cutaway.server"):
        with large.connection("/v1/completions", {"prompt": "second", "max_tokens": 1}):
            until(lambda: large.service._encoders._work_queue.qsize() == 1, "it waits")
        until(lambda: any(record.fields["status"] == 499 for record in caplog.records), "it has left")  # type: ignore[attr-defined]
    may_end.set()
    for thread in first:
        thread.join(SECONDS)
    assert large.complete(prompt="third", max_tokens=1).status == 200
    assert "second" not in seen
