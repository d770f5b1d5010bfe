"""Completions over HTTP: texts, ids, lists of them; echo and the prompt's logprobs, as evaluation harnesses ask."""

import math
from typing import Any

import pytest

from cutaway import LLM, SamplingParams
from support.http_server import Reply, RunningServer

TEXT = "The capital of France is"
FIELDS: dict[str, Any] = {"prompt": TEXT, "temperature": 0.8, "seed": 3, "max_tokens": 8}
PARAMS: dict[str, Any] = {"temperature": 0.8, "seed": 3, "max_tokens": 8}


def joined(reply: Reply) -> dict[int, dict[str, Any]]:
    """The choices of a stream, put together."""
    *chunks, done = reply.events
    assert done == "[DONE]"
    found: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        assert chunk["object"] == "text_completion"
        for choice in chunk["choices"]:
            mine = found.setdefault(choice["index"], {"text": "", "finish_reason": None, "logprobs": None})
            assert mine["finish_reason"] is None
            mine["text"] += choice["text"]
            mine["finish_reason"] = choice["finish_reason"]
            if choice["logprobs"] is not None:
                before = mine["logprobs"] or {key: [] for key in choice["logprobs"]}
                mine["logprobs"] = {key: before[key] + more for key, more in choice["logprobs"].items()}
    return found


def test_text_ids_and_several(server: RunningServer, llm: LLM) -> None:
    ids = llm.tokenizer.encode(TEXT)
    other = "Water boils at"
    want = [llm.generate(each, SamplingParams(**PARAMS), use_tqdm=False)[0].outputs[0].text for each in (TEXT, other)]
    assert want[0] != want[1]
    for prompt, texts in ((TEXT, want[:1]), (ids, want[:1]), ([TEXT, other], want), ([other, ids], want[::-1])):
        whole = server.complete(**{**FIELDS, "prompt": prompt}).json
        assert whole["object"] == "text_completion"
        assert [(each["index"], each["text"]) for each in whole["choices"]] == list(enumerate(texts))
        stream = joined(server.complete(**{**FIELDS, "prompt": prompt}, stream=True))
        assert [stream[index]["text"] for index in range(len(texts))] == texts
    both = server.complete(**{**FIELDS, "prompt": [TEXT, other]}).json["usage"]
    assert both["prompt_tokens"] == len(ids) + len(llm.tokenizer.encode(other))
    assert both["completion_tokens"] == 16


def test_choices_of_several_prompts_are_numbered_on(server: RunningServer, llm: LLM) -> None:
    prompts = [TEXT, "Water boils at"]
    want = [
        each.text
        for prompt in prompts
        for each in llm.generate(prompt, SamplingParams(**PARAMS, n=2), use_tqdm=False)[0].outputs
    ]
    fields = {**FIELDS, "prompt": prompts, "n": 2, "best_of": 2}
    choices = server.complete(**fields).json["choices"]
    assert [(each["index"], each["text"]) for each in choices] == list(enumerate(want))
    stream = joined(server.complete(**fields, stream=True))
    assert [stream[index]["text"] for index in range(4)] == want


def test_defaults_are_openais(server: RunningServer) -> None:
    reply = server.complete(return_parameters=True).json
    assert reply["usage"]["completion_tokens"] == 16
    assert reply["cutaway"]["parameters"]["temperature"] == 1
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("count", [0, 1, 5])
def test_logprobs(server: RunningServer, llm: LLM, count: int) -> None:
    want = llm.generate(TEXT, SamplingParams(**PARAMS, logprobs=count), use_tqdm=False)[0].outputs[0]
    assert want.logprobs is not None
    (choice,) = server.complete(**FIELDS, logprobs=count).json["choices"]
    found = choice["logprobs"]
    assert found["token_logprobs"] == [at[t].logprob for t, at in zip(want.token_ids, want.logprobs, strict=True)]
    assert "".join(found["tokens"]) == choice["text"]
    assert [
        choice["text"][start:].startswith(token)
        for start, token in zip(found["text_offset"], found["tokens"], strict=True)
    ] == [True] * 8
    for top, at in zip(found["top_logprobs"], want.logprobs, strict=True):
        assert top == {entry.decoded_token: entry.logprob for entry in at.values()}
    assert joined(server.complete(**FIELDS, logprobs=count, stream=True))[0]["logprobs"] == found


@pytest.mark.parametrize("as_ids", [False, True])
@pytest.mark.parametrize("max_tokens", [0, 1, 3])
def test_echo_with_logprobs(server: RunningServer, llm: LLM, as_ids: bool, max_tokens: int) -> None:
    """The prompt's own logprobs, in the places where harnesses look for them; nothing generated if 0 is asked for."""
    ids = llm.tokenizer.encode(TEXT)
    params = SamplingParams(temperature=0, max_tokens=max(max_tokens, 1), logprobs=1, prompt_logprobs=1)
    want = llm.generate(ids, params, use_tqdm=False)[0]
    scores, answer = want.prompt_logprobs, want.outputs[0]
    assert scores is not None
    assert answer.logprobs is not None
    fields = {
        "prompt": ids if as_ids else TEXT,
        "temperature": 0,
        "max_tokens": max_tokens,
        "logprobs": 1,
        "echo": True,
    }
    reply = server.complete(**fields).json
    (choice,) = reply["choices"]
    assert reply["usage"]["completion_tokens"] == max_tokens
    assert choice["text"] == TEXT + (answer.text if max_tokens else "")
    found = choice["logprobs"]
    values = [None] + [at[t].logprob for t, at in zip(ids[1:], scores[1:], strict=True) if at is not None]
    values += [at[t].logprob for t, at in zip(answer.token_ids, answer.logprobs, strict=True)][:max_tokens]
    assert found["token_logprobs"] == values
    assert found["top_logprobs"][0] is None
    assert all(value <= max(top.values()) for value, top in zip(values[1:], found["top_logprobs"][1:], strict=True))
    assert [
        choice["text"][start:].startswith(t) for start, t in zip(found["text_offset"], found["tokens"], strict=True)
    ]
    assert found["text_offset"][len(ids) :] == [len(TEXT)] * bool(max_tokens) + found["text_offset"][len(ids) + 1 :]
    stream = joined(server.complete(**fields, stream=True))[0]
    assert stream == {"text": choice["text"], "finish_reason": choice["finish_reason"], "logprobs": found}


def test_echo_alone(server: RunningServer) -> None:
    plain = server.complete(**FIELDS).json["choices"][0]["text"]
    assert server.complete(**FIELDS, echo=True).json["choices"][0]["text"] == TEXT + plain
    refused = server.complete(**{**FIELDS, "max_tokens": 0})
    assert (refused.status, refused.error["param"]) == (400, "max_tokens")


def test_a_logprob_is_always_a_number(server: RunningServer) -> None:
    """A token that is all but impossible has one, too."""
    fields = {"prompt": "correct horse battery staple", "echo": True, "logprobs": 1, "temperature": 1, "top_k": 1}
    values = server.complete(**fields).json["choices"][0]["logprobs"]["token_logprobs"]
    assert values[0] is None
    assert all(math.isfinite(value) and value <= 0 for value in values[1:])


def test_a_prompt_that_ends_within_a_character(server: RunningServer, llm: LLM) -> None:
    """What is sent is new text alone."""
    whole = llm.tokenizer.encode("Hello 😀", add_bos=False)
    last = whole[-1]
    fields = {"prompt": whole[:-1], "max_tokens": 1, "allowed_token_ids": [last], "temperature": 0}
    assert server.complete(**fields).json["choices"][0]["text"] == "😀"
    assert joined(server.complete(**fields, stream=True))[0]["text"] == "😀"
    echoed = server.complete(**fields, echo=True, logprobs=0).json["choices"][0]
    assert echoed["text"] == "Hello 😀"
    assert echoed["logprobs"]["text_offset"] == [0, 5, 6]
    assert "".join(echoed["logprobs"]["tokens"]).count("bytes:") == 2  # a space and most of it, and the rest
    assert joined(server.complete(**fields, echo=True, logprobs=0, stream=True))[0] == {
        "text": "Hello 😀",
        "finish_reason": "length",
        "logprobs": echoed["logprobs"],
    }


def test_ids_are_returned(server: RunningServer, llm: LLM) -> None:
    want = llm.generate(TEXT, SamplingParams(**PARAMS), use_tqdm=False)[0]
    (choice,) = server.complete(**FIELDS, return_token_ids=True).json["choices"]
    assert choice["prompt_token_ids"] == want.prompt_token_ids
    assert choice["token_ids"] == want.outputs[0].token_ids
    chunks = server.complete(**FIELDS, return_token_ids=True, stream=True).events[:-1]
    assert chunks[0]["choices"][0]["prompt_token_ids"] == want.prompt_token_ids
    assert [token for each in chunks for token in each["choices"][0]["token_ids"]] == want.outputs[0].token_ids


@pytest.mark.parametrize(
    ("wrong", "place", "words"),
    [
        ("", "prompt[1]", "prompt[1] is empty"),
        ([5] * 1024, "prompt[1]", "the prompt is too long: it has 1024 tokens"),
        ("a" * 100_000, "prompt[1]", "where the model allows it"),
        ([5, 49152], "prompt[1][1]", "prompt[1][1] is 49152; it must be an integer from 0 to 49151"),
    ],
    ids=["empty", "ids", "text", "vocabulary"],
)
def test_which_prompt_is_at_fault(server: RunningServer, wrong: Any, place: str, words: str) -> None:
    """Of a list its place, alone the field."""
    sound = [5] if isinstance(wrong, list) else "The sea is"
    refused = server.complete(prompt=[sound, wrong], max_tokens=1)
    assert (refused.status, refused.error["param"], words in refused.error["message"]) == (400, place, True), refused
    alone = server.complete(prompt=wrong, max_tokens=1)
    assert (alone.status, alone.error["param"]) == (400, place.replace("prompt[1]", "prompt"))
