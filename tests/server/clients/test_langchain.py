"""LangChain's ChatOpenAI, unmodified: what it gets is what the engine says."""

from pathlib import Path
from typing import Any

import pytest

from cutaway import LLM, SamplingParams
from support.clients import needs_clients, report
from support.http_server import RunningServer

pytestmark = needs_clients

SCRIPT = Path(__file__).parent / "scripts" / "langchain_chat.py"
QUESTION = {"role": "user", "content": "What is gravity?"}
SEEDED: dict[str, Any] = {"temperature": 0.7, "seed": 5, "max_tokens": 24}


@pytest.fixture(scope="module")
def found(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All that the script reports."""
    return report(SCRIPT, f"{server.url}/v1", folder=tmp_path_factory.mktemp("langchain"))


def answer(llm: LLM, *messages: dict[str, str], **fields: Any) -> Any:
    return llm.chat([*messages] or [QUESTION], SamplingParams(**fields), use_tqdm=False)[0]


def test_an_answer_and_its_usage(found: Any, llm: LLM) -> None:
    want = answer(llm, **SEEDED)
    got = found["invoke"]
    assert got["text"] == want.outputs[0].text
    assert got["usage"]["input_tokens"] == len(want.prompt_token_ids)
    assert got["usage"]["output_tokens"] == len(want.outputs[0].token_ids)
    assert got["usage"]["total_tokens"] == got["usage"]["input_tokens"] + got["usage"]["output_tokens"]
    assert got["usage"]["input_token_details"]["cache_read"] < len(want.prompt_token_ids)
    assert got["metadata"]["finish_reason"] == want.outputs[0].finish_reason
    assert got["metadata"]["model_name"] == "smollm2"
    assert got["metadata"]["system_fingerprint"].startswith("cutaway-")
    assert got["metadata"]["id"].startswith("chatcmpl-")


def test_seeds(found: Any, llm: LLM) -> None:
    other = answer(llm, **{**SEEDED, "seed": 6}).outputs[0].text
    assert found["another_seed"]["text"] == other != found["invoke"]["text"]


def test_a_stream(found: Any) -> None:
    whole, streams = found["invoke"], [found["stream"], found["async"]["stream"]]
    for streamed in streams:
        assert streamed["text"] == whole["text"]
        assert streamed["chunks"] > 10
        assert streamed["metadata"]["finish_reason"] == whole["metadata"]["finish_reason"]
    for name in ("input_tokens", "output_tokens", "total_tokens"):
        assert found["stream"]["usage"][name] == whole["usage"][name]


def test_several_at_once(found: Any, llm: LLM) -> None:
    questions = ["What is gravity?", "Name a colour.", "Count to three."]
    want = [answer(llm, {"role": "user", "content": each}, **SEEDED).outputs[0].text for each in questions]
    assert [each["text"] for each in found["batch"]] == want
    beside = [found["async"]["invoke"], *found["async"]["several"]]
    assert [each["text"] for each in beside] == want[:1] * 3


@pytest.mark.parametrize("name", ["logprobs", "streamed_logprobs"])
def test_logprobs(found: Any, llm: LLM, name: str) -> None:
    want = answer(llm, temperature=0, max_tokens=6, logprobs=3).outputs[0]
    got = found[name]["metadata"]["logprobs"]["content"]
    assert found[name]["text"] == want.text
    pairs = list(zip(want.token_ids, want.logprobs, strict=True))
    assert [each["logprob"] for each in got] == [at[token].logprob for token, at in pairs]
    assert [[top["logprob"] for top in each["top_logprobs"]] for each in got] == [
        [entry.logprob for entry in sorted(at.values(), key=lambda entry: entry.rank)[:3]] for _, at in pairs
    ]


def test_stop(found: Any, llm: LLM) -> None:
    want = answer(llm, temperature=0, max_tokens=60, stop=["."]).outputs[0]
    assert found["stop"]["text"] == want.text
    assert "." not in want.text
    assert found["stop"]["metadata"]["finish_reason"] == want.finish_reason == "stop"


def test_a_conversation_and_a_chain(found: Any, llm: LLM) -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Hello, Ada."},
        {"role": "user", "content": "What is my name?"},
    ]
    assert found["conversation"]["text"] == answer(llm, *turns, **SEEDED).outputs[0].text
    system = {"role": "system", "content": "Answer in French."}
    assert found["chain"] == answer(llm, system, QUESTION, **SEEDED).outputs[0].text


def test_a_prompt_that_is_too_long_is_told_as_such(found: Any) -> None:
    """By LangChain's own class, upon which programs shorten their history."""
    assert found["overflow"]["class"] == "OpenAIContextOverflowError"
    assert "this model's maximum context length is 1024 tokens" in found["overflow"]["message"]
