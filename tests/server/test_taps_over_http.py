"""Tapped tensors over HTTP: the same as from Python, where the server's owner allows it; else an error."""

import base64
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway import LLM, SamplingParams, TapRequest
from cutaway.engine.runner import ModelRunner
from cutaway.server.openai.taps import TappedTensor
from support.bits import differing
from support.http_server import RunningServer, running
from support.patience import SECONDS

TAPS = ["layers.*.resid@answer", "layers.2.attn.weights", "layers.0.attention_input@2"]
RESID = "layers.3.ffn_residual"
BODY = {"prompt": "The capital of France is", "temperature": 0, "max_tokens": 4, "ignore_eos": True}


@pytest.fixture(scope="module")
def small(smollm2_path: Path) -> Iterator[LLM]:
    with LLM(smollm2_path, threads=2, max_model_len=256, max_tap_bytes=1_000_000) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def tapping(small: LLM) -> Iterator[RunningServer]:
    with running(small, max_tap_bytes=1_000_000) as started:
        yield started


def arrays(taps: dict[str, Any]) -> dict[str, Any]:
    return {
        name: np.frombuffer(base64.b64decode(each["base64"]), each["dtype"]).reshape(each["shape"])
        for name, each in taps.items()
    }


def test_completions(tapping: RunningServer, small: LLM) -> None:
    prompts = [BODY["prompt"], "One, two,"]
    reply = tapping.post("/v1/completions", {**BODY, "prompt": prompts, "taps": TAPS}).json
    assert set(reply["cutaway"]) == {"taps"}
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    want = small.generate(prompts, params, taps=TapRequest(*TAPS))
    for got, output, choice in zip(reply["cutaway"]["taps"], want, reply["choices"], strict=True):
        assert choice["text"] == output.outputs[0].text
        assert output.taps is not None
        assert set(got) == set(output.taps)
        for name, array in arrays(got).items():
            assert differing(array, output.taps[name].values) == 0
            assert got[name]["positions"] == output.taps[name].positions.tolist()


def test_several_answers_to_several_prompts(tapping: RunningServer, small: LLM) -> None:
    fields = {"temperature": 1.0, "n": 2, "seed": 4}
    prompts, taps = [BODY["prompt"], "One, two,"], ["layers.3.resid", "output_norm"]
    reply = tapping.post("/v1/completions", {**BODY, **fields, "prompt": prompts, "taps": taps}).json
    params = SamplingParams(temperature=1.0, n=2, seed=4, max_tokens=4, ignore_eos=True)
    want = small.generate(prompts, params, taps=TapRequest(*taps))
    assert [each["text"] for each in reply["choices"]] == [each.text for output in want for each in output.outputs]
    for got, output in zip(reply["cutaway"]["taps"], want, strict=True):
        assert output.taps is not None
        keys = [f"{choice}{name}" for choice in ("", "choices.0.", "choices.1.") for name in ("output_norm", RESID)]
        assert sorted(got) == sorted(output.taps) == sorted(keys)
        for name, array in arrays(got).items():
            assert differing(array, output.taps[name].values) == 0
        drawn = got["choices.1.output_norm"]["positions"]
        assert drawn == [len(output.prompt_token_ids) + place for place in range(3)]


def test_chats_whole_and_as_a_stream(tapping: RunningServer) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 4}
    whole = tapping.post("/v1/chat/completions", {**body, "taps": TAPS, "return_parameters": True}).json
    assert set(whole["cutaway"]) == {"parameters", "seeds", "ignored", "statistics", "taps"}
    *_, last, done = tapping.post("/v1/chat/completions", {**body, "taps": TAPS, "stream": True}).events
    assert done == "[DONE]"
    assert last["cutaway"] == {"taps": whole["cutaway"]["taps"]}
    plain = tapping.post("/v1/chat/completions", body).json
    assert plain["choices"] == whole["choices"]
    assert "cutaway" not in plain


@pytest.mark.parametrize(
    ("taps", "status", "code", "message"),
    [
        (["layers.2.atention"], 400, "invalid_value", "nearest names are attention"),
        (["layers.30.resid"], 400, "invalid_value", "the model has 0 to 29"),
        (["logits@all"], 400, "capacity_exceeded", "the limit (max_tap_bytes, --max-tap-bytes) is 1,000,000"),
        ("logits", 400, "invalid_type", "taps is 'logits'"),
        ([3], 400, "invalid_type", "taps[0] is 3"),
        (["logits"] * 257, 400, "invalid_value", "256 at most"),
        (["x" * 201], 400, "invalid_value", "200 characters"),
    ],
)
def test_what_is_refused(tapping: RunningServer, taps: Any, status: int, code: str, message: str) -> None:
    reply = tapping.post("/v1/completions", {**BODY, "taps": taps})
    assert (reply.status, reply.error["code"]) == (status, code)
    assert message in reply.error["message"]
    assert reply.error["param"] == ("taps[0]" if taps == [3] else "taps")
    assert tapping.post("/v1/completions", BODY).status == 200


@pytest.mark.parametrize(
    ("prompts", "taps", "code", "message"),
    [
        ([[1], [2, 3], [4]] * 3, ["logits"], "capacity_exceeded", "7,077,888 bytes together"),  # 9 · 4 · 4 · 49,152
        ([[1], [2, 3]], ["layers.2.atention"], "invalid_value", "nearest names are attention"),
        ([[1], [2, 3]], ["embed@5"], "invalid_value", "selects no position"),
    ],
)
def test_prompts_of_one_body_are_refused_together(
    tapping: RunningServer, prompts: list[list[int]], taps: list[str], code: str, message: str
) -> None:
    """Not as if other requests had to end first: to try again would never help."""
    reply = tapping.post("/v1/completions", {**BODY, "prompt": prompts, "taps": taps})
    assert (reply.status, reply.error["code"], reply.error["param"]) == (400, code, "taps")
    assert message in reply.error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_large_reply_holds_nobody_up(tapping: RunningServer, monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    """While tensors are written as text, which takes seconds where there are many, others are served."""
    plain, begun, served, waited = TappedTensor.as_json, threading.Event(), threading.Event(), []

    def slow(self: TappedTensor) -> dict[str, Any]:
        begun.set()
        waited.append(served.wait(20))
        return plain(self)

    monkeypatch.setattr(TappedTensor, "as_json", slow)
    replies: list[Any] = []
    body = {**BODY, "taps": ["logits"], "stream": stream}
    asking = threading.Thread(target=lambda: replies.append(tapping.post("/v1/completions", body)), daemon=True)
    asking.start()
    assert begun.wait(SECONDS)
    assert tapping.post("/v1/completions", BODY).status == 200
    served.set()
    asking.join(SECONDS)
    assert waited == [True]
    (reply,) = replies
    found = [*reply.events][-2] if stream else reply.json
    (taps,) = found["cutaway"]["taps"]
    assert arrays(taps)["logits"].shape == (4, 49152)


def test_a_server_takes_none_by_default(server: RunningServer) -> None:
    for path, body in (
        ("/v1/completions", BODY),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}),
    ):
        reply = server.post(path, {**body, "taps": ["logits"]})
        assert (reply.status, reply.error["code"], reply.error["param"]) == (403, "taps_not_allowed", "taps")
        assert server.post(path, {**body, "taps": []}).status == 200
        assert server.post(path, {**body, "taps": None}).status == 200


def test_during_overload(smollm2_path: Path) -> None:
    """A full queue, and taps of others that leave no room: errors, and every answer is what it is alone."""
    with (
        LLM(smollm2_path, threads=2, max_model_len=256, max_num_seqs=2, max_waiting=4, max_tap_bytes=900_000) as llm,
        running(llm, max_tap_bytes=900_000) as server,
    ):
        alone = server.post("/v1/completions", BODY).json["choices"][0]["text"]
        replies: list[Any] = []

        def ask(number: int) -> None:
            replies.append(server.post("/v1/completions", {**BODY, **({"taps": ["logits"]} if number % 2 else {})}))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {reply.status for reply in replies} == {200, 429}
        assert all(reply.json["choices"][0]["text"] == alone for reply in replies if reply.status == 200)
        told = [reply.error["message"] for reply in replies if reply.status == 429]
        assert all("max_tap_bytes" in message or "wait" in message for message in told), told
        assert server.post("/v1/completions", {**BODY, "taps": ["logits"]}).status == 200


def test_open_steps_are_compiled_before_there_are_requests(small: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the engine's thread: nobody else may use the runner, which others may be using."""
    threads: list[str] = []
    plain = ModelRunner.prepare_tapped

    def noted(runner: ModelRunner, *arguments: Any) -> Any:
        threads.append(threading.current_thread().name)
        return plain(runner, *arguments)

    monkeypatch.setattr(ModelRunner, "prepare_tapped", noted)
    with running(small):
        assert threads == []
    with running(small, max_tap_bytes=1_000_000) as server:
        assert threads == ["cutaway-engine"]
        assert server.post("/v1/completions", BODY).status == 200
        assert threads == ["cutaway-engine"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 2])
def test_the_cost_is_announced(tapping: RunningServer, small: LLM, stream: bool, n: int) -> None:
    """By a header, which is the plan's sum for all prompts; without taps there is none."""
    prompts, taps = ["The capital of France is", "One, two,"], ["layers.3.resid", "layers.2.attn.weights@answer"]
    fields = {"prompt": prompts, "n": n, "temperature": 1.0, "max_tokens": 4, "ignore_eos": True, "stream": stream}
    reply = tapping.post("/v1/completions", {**fields, "taps": taps})
    lengths = [len(small.tokenizer.encode(each)) for each in prompts]
    plans = [TapRequest(*taps).plan(small.runner, length, 4, n) for length in lengths]
    assert reply.headers["cutaway-tap-bytes"] == str(sum(plan.num_bytes for plan in plans))
    assert "cutaway-tap-bytes" not in tapping.post("/v1/completions", fields).headers


def test_several_prompts_with_several_answers_are_held_to_the_limit_together(tapping: RunningServer) -> None:
    """Half of it would be within the limit, and all of it never will be: 400, and not 429."""
    body = {**BODY, "prompt": ["One", "Two"], "taps": ["layers.*.resid"], "max_tokens": 5, "temperature": 1.0}
    assert tapping.post("/v1/completions", body).status == 200
    reply = tapping.post("/v1/completions", {**body, "n": 2})
    assert reply.status == 400
    assert reply.error["code"] == "capacity_exceeded"
    assert "2 prompts would keep up to" in reply.error["message"]
