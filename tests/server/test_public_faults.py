"""Faults that users of other engines reported in public, each asked of a served model; a docstring begins with where.

Asked elsewhere, of other vocabularies, model files or answers than SmolLM2's:
vllm-project/vllm#17448 (ids that break an incremental decoder) in tests/tokenizer/test_tokenizer.py;
huggingface/transformers#22710 (the first space of SentencePiece's texts) and huggingface/transformers#47473 (bytes
shown as "<0x0A>") in tests/tokenizer/test_sentencepiece.py; vllm-project/vllm#4180 (several ends of a turn) in
tests/tokenizer/test_open_tokenizer.py and test_vocabulary.py; abetlen/llama-cpp-python#1501 (BOS twice) in
tests/tokenizer/test_built_in_templates.py and test_added_tokens.py; sgl-project/sglang PR #23660 (templates that run
code) in tests/tokenizer/test_chat_template.py; QwenLM/Qwen3#1894 (arguments of calls as text or as a mapping) in
tests/tokenizer/test_tool_calls.py; calls of tools and thoughts, whole and streamed (raullenchai/Rapid-MLX#219,
vllm-project/vllm#9693, jjang-ai/vmlx#219), in tests/server/test_tools.py.
"""

import json
import math
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cutaway import LLM
from cutaway.errors import ComputationError
from support.gate import gated
from support.http_server import Reply, RunningServer, running, until
from support.patience import SECONDS, finishes

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 8}
FREE: dict[str, Any] = {"temperature": 1, "seed": 42, "max_tokens": 12, "ignore_eos": True}


@pytest.fixture(scope="module")
def small(smollm2_path: Path) -> Iterator[LLM]:
    """One sequence runs, four may wait."""
    with LLM(smollm2_path, threads=1, max_model_len=256, max_num_seqs=1, max_waiting=4) as llm:
        yield llm


@pytest.fixture(scope="module")
def narrow(small: LLM) -> Iterator[RunningServer]:
    """A server over it."""
    with running(small) as started:
        yield started


@pytest.fixture(autouse=True)
def _alive(server: RunningServer) -> Iterator[None]:
    yield
    assert server.get("/health").status == 200


def text(reply: Reply) -> str:
    """Of the only choice, whole or streamed."""
    if not reply.headers["content-type"].startswith("text/event-stream"):
        (choice,) = reply.json["choices"]
        return str(choice["text"])
    return "".join(deltas(reply))


def deltas(reply: Reply) -> list[str]:
    """The texts of a streamed completion's chunks."""
    *chunks, done = reply.events
    assert done == "[DONE]"
    return [chunk["choices"][0]["text"] for chunk in chunks]


def ends(llm: LLM) -> dict[str, int]:
    """A bias that ends the answer."""
    return {str(llm.tokenizer.eos_id): 100}


def refused(reply: Reply, param: str | None, *words: str) -> None:
    """A 400 in OpenAI's shape that names the field."""
    assert reply.status == 400, reply
    assert reply.error["type"] == "invalid_request_error"
    assert param is None or reply.error["param"] == param
    for word in words:
        assert word in reply.error["message"]


def together(*asked: Callable[[], Reply]) -> list[Reply]:
    """The replies to requests that are made at once."""
    replies: dict[int, Reply] = {}

    def ask(index: int) -> None:
        replies[index] = asked[index]()

    threads = [threading.Thread(target=ask, args=(index,), daemon=True) for index in range(len(asked))]
    for thread in threads:
        thread.start()
    for thread in threads:
        finishes(thread.join)
    return [replies[index] for index in range(len(asked))]


def in_engine(llm: LLM) -> int:
    """Requests that the engine has, without waiting for its step."""
    return len(llm._core.generations())


# --- Decoding and streaming ---


@pytest.mark.parametrize("stream", [False, True])
def test_characters_that_are_split_over_tokens(server: RunningServer, stream: bool) -> None:
    """antonellof/ferrox#124: decoding token by token broke characters; no delta may show half of one."""
    want = "😀é海👍🏽"
    reply = server.complete(**{**GREEDY, "max_tokens": 60}, guided_choice=[want], stream=stream)
    assert text(reply) == want
    if stream:
        assert not any("\ufffd" in delta for delta in deltas(reply))


@pytest.mark.parametrize("stream", [False, True])
def test_a_character_that_stays_broken(server: RunningServer, llm: LLM, stream: bool) -> None:
    """exo-explore/exo PR #1691: what never becomes a character is shown once, at the end."""
    first, *_ = llm.tokenizer.encode("😀", add_bos=False)
    reply = server.complete(temperature=0, max_tokens=1, allowed_token_ids=[first], stream=stream)
    assert text(reply) == "\ufffd"


def test_a_prompt_of_ids_that_ends_amid_a_character(server: RunningServer, llm: LLM) -> None:
    """vllm-project/vllm#48853: the whole prompt came again in the first delta; only new text may come."""
    ids = [*llm.tokenizer.encode("Hello ", add_bos=False), 10813, 230]
    fields = {"prompt": ids, "temperature": 0, "max_tokens": 4}
    whole, streamed = server.complete(**fields), server.complete(**fields, stream=True)
    assert text(whole) == text(streamed)
    assert "Hello" not in deltas(streamed)[0]


@pytest.mark.parametrize("path", [CHAT, COMPLETE])
def test_no_empty_chunks_for_the_sake_of_a_stop_string(server: RunningServer, path: str) -> None:
    """vllm-project/vllm#13087: the first chunks were empty with stop; text comes as soon as it can't be part of it."""
    asked = {"prompt": "Count: 1, 2,"} if path == COMPLETE else {"messages": [{"role": "user", "content": "Count."}]}
    fields = {**asked, "temperature": 0, "max_tokens": 16, "ignore_eos": True, "stream": True}

    def texts(**more: Any) -> list[str]:
        *chunks, _ = server.post(path, {**fields, **more}).events
        choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
        kept = [each for each in choices if each["finish_reason"] is None and "role" not in each.get("delta", ())]
        return [each["text"] if path == COMPLETE else each["delta"]["content"] for each in kept]

    stopped = texts(stop=["zzz"])
    assert len(stopped) > 1
    assert "" not in stopped
    assert stopped == texts()


# --- Stop conditions and limits ---


@pytest.mark.parametrize(
    ("stop", "sound"),
    [
        ("", False),
        ([""], False),
        (["a", ""], False),
        ([], True),
        (None, True),
        (["\u2603", "\u2603"], True),
        ([f"\u2603{number}" for number in range(6)], True),
    ],
    ids=str,
)
def test_empty_stop_strings(server: RunningServer, stop: Any, sound: bool) -> None:
    """h2oai/h2o-llmstudio PR #54: an empty stop string ended the answer at once; it is refused, and none is none."""
    reply = server.complete(**GREEDY, stop=stop)
    if sound:
        assert text(reply) == text(server.complete(**GREEDY)) != ""
    else:
        refused(reply, "stop", "none of them empty")


@pytest.mark.parametrize("least", [0, 1, 4])
def test_min_tokens_off_by_one(server: RunningServer, llm: LLM, least: int) -> None:
    """vllm-project/vllm PR #46243: min_tokens was off by one; with a bias to the end there's one id more, the end."""
    reply = server.complete(temperature=0, min_tokens=least, max_tokens=20, logit_bias=ends(llm), return_token_ids=True)
    (choice,) = reply.json["choices"]
    ids = choice["token_ids"]
    assert (len(ids), choice["finish_reason"]) == (least + 1, "stop")
    assert ids.index(llm.tokenizer.eos_id) == least


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETE])
@pytest.mark.parametrize("why", ["max_tokens", "eos", "stop"])
def test_finish_reasons(server: RunningServer, llm: LLM, path: str, stream: bool, why: str) -> None:
    """waybarrios/vllm-mlx#628: finish_reason was missing or always "stop"; one chunk has it, the same as unstreamed."""
    reasons: dict[str, dict[str, Any]] = {
        "max_tokens": {"max_tokens": 3, "ignore_eos": True},
        "eos": {"max_tokens": 5, "logit_bias": ends(llm)},
        "stop": {"max_tokens": 40, "stop": ["a"], "guided_choice": ["b a b"]},
    }
    asked: dict[str, Any] = (
        {"prompt": "The sea is"} if path == COMPLETE else {"messages": [{"role": "user", "content": "Hello"}]}
    )
    reply = server.post(path, {**asked, "temperature": 0, **reasons[why], "stream": stream})
    chunks = reply.events[:-1] if stream else [reply.json]
    found = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    assert [each for each in found if each] == ["length" if why == "max_tokens" else "stop"]
    assert found[-1]


@pytest.mark.parametrize("over", [1, 5, 3000])
def test_the_numbers_of_the_contexts_limit(server: RunningServer, llm: LLM, over: int) -> None:
    """vllm-project/vllm#33418: the error's numbers were wrong; it tells the limit, the prompt and max_tokens."""
    ids = llm.tokenizer.encode("one two three four five six seven eight")
    most = 1024 - len(ids)
    numbers = "1024", str(len(ids)), str(most + over)
    refused(server.complete(prompt=ids, max_tokens=most + over), "max_tokens", *numbers)
    fits = server.complete(prompt=ids, max_tokens=most, temperature=0, logit_bias=ends(llm))
    assert fits.json["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("length", [1024, 9632])
@pytest.mark.parametrize("more", [{}, {"max_tokens": 1}], ids=str)
def test_a_prompt_beyond_the_context(server: RunningServer, length: int, more: dict[str, Any]) -> None:
    """vllm-project/vllm PR #36789: "at least 1, got -7584"; the error speaks of the prompt, in no negative number."""
    reply = server.complete(prompt=[5] * length, **more)
    refused(reply, "prompt", str(length), "1024")
    assert not re.search(r"-\d", reply.error["message"])


@pytest.mark.parametrize("path", [CHAT, COMPLETE])
@pytest.mark.parametrize("most", [100_000_000, 0, -1, 2**63])
def test_max_tokens_out_of_all_bounds(server: RunningServer, path: str, most: int) -> None:
    """vllm-project/vllm#19861: max_tokens beyond what is left; it is refused, never cut in silence."""
    reply = server.chat(max_tokens=most) if path == CHAT else server.complete(max_tokens=most)
    refused(reply, "max_tokens")


# --- Sampling ---


def test_which_tokens_the_penalties_count(server: RunningServer, llm: LLM) -> None:
    """NVIDIA/TensorRT-LLM PR #5623: presence and frequency count what was generated, repetition the prompt as well."""
    (paris,), (london,) = (llm.tokenizer.encode(word, add_bos=False) for word in (" Paris", " London"))
    asked = {"prompt": " Paris" * 12, "temperature": 0}

    def logprob(token: int) -> float:
        reply = server.complete(**asked, max_tokens=1, allowed_token_ids=[token], logprobs=0)
        return float(reply.json["choices"][0]["logprobs"]["token_logprobs"][0])

    def is_paris(lead: float, count: int, **penalty: float) -> list[bool]:
        """Of either token, where the first step prefers Paris by so much."""
        bias = {str(paris): logprob(london) - logprob(paris) + lead}
        fields = {**asked, "max_tokens": count, "allowed_token_ids": [paris, london], "logit_bias": bias, **penalty}
        (choice,) = server.complete(**fields, return_token_ids=True).json["choices"]
        return [token == paris for token in choice["token_ids"]]

    assert is_paris(0.1, 1) == [True]
    assert is_paris(0.1, 1, repetition_penalty=2) == [False]
    assert is_paris(0.1, 1, presence_penalty=2) == is_paris(0.1, 1, frequency_penalty=2) == [True]
    assert all(is_paris(15, 20))
    assert not all(is_paris(15, 20, frequency_penalty=2))


def test_top_k_beyond_the_vocabulary_beside_a_greedy_one(server: RunningServer) -> None:
    """torch-spyre/sendnn-inference#542: such a top_k killed the server; it cuts nothing, and rows are independent."""
    greedy, free = text(server.complete(**GREEDY)), text(server.complete(**FREE))
    replies = together(
        lambda: server.complete(**GREEDY),
        lambda: server.complete(**FREE, top_k=9_999_999),
        lambda: server.complete(**FREE, top_k=1),
    )
    assert [text(reply) for reply in replies[:2]] == [greedy, free]


@pytest.mark.parametrize("temperature", [0.0003, 0.0001, 1e-30, 5e-324])
@pytest.mark.parametrize("more", [{}, {"logit_bias": {"260": -100, "253": -100}}], ids=["plain", "bias"])
def test_tiny_temperatures(server: RunningServer, temperature: float, more: dict[str, Any]) -> None:
    """karpathy/nanoGPT PR #756: a tiny temperature overflowed or gave nothing; it's the likeliest token then."""
    want = text(server.complete(**GREEDY, **more))
    assert want
    assert text(server.complete(**{**GREEDY, "temperature": temperature}, seed=1, **more)) == want


@pytest.mark.parametrize("literal", ["-0.1", "2.1", "NaN", "Infinity", "-Infinity", '"0.5"', "1e999"])
def test_temperatures_that_are_none(server: RunningServer, literal: str) -> None:
    """abetlen/llama-cpp-python#1384: a negative temperature was taken; outside of 0 to 2 it's refused, as NaN is."""
    body = f'{{"prompt": "x", "max_tokens": 1, "temperature": {literal}}}'
    refused(server.post(COMPLETE, body.encode()), None)


def test_a_seed_beside_a_request_without(server: RunningServer) -> None:
    """vllm-project/vllm#51226: a seed was ignored when a neighbour had none; its answer depends on itself alone."""
    want = text(server.complete(**FREE))
    unseeded = {key: value for key, value in FREE.items() if key != "seed"}
    for _ in range(2):
        replies = together(
            lambda: server.complete(**unseeded), lambda: server.complete(**FREE), lambda: server.complete(**unseeded)
        )
        assert text(replies[1]) == want


@pytest.mark.parametrize("seed", [-1, 0, 2**63 - 1, -(2**63), -9007199254740991])
def test_seeds_of_64_bits(server: RunningServer, seed: int) -> None:
    """vllm-project/vllm PR #4529: large seeds crashed the engine; each of 64 bits is one, -1 too, with n as well."""
    one, other = (server.complete(**{**FREE, "seed": seed}, n=2).json["choices"] for _ in range(2))
    assert [each["text"] for each in one] == [each["text"] for each in other]
    assert one[0]["text"] != one[1]["text"]


@pytest.mark.parametrize("seed", [2**64, 2**63, -(2**63) - 1, 10**20, "100", 1.5, True])
def test_seeds_beyond(server: RunningServer, seed: Any) -> None:
    """sgl-project/sglang PR #28960: what is no seed of 64 bits is refused."""
    refused(server.complete(seed=seed), "seed")


@pytest.mark.parametrize("n", [2, 8])
@pytest.mark.parametrize("stream", [False, True])
def test_every_choice_of_several(server: RunningServer, n: int, stream: bool) -> None:
    """vllm-project/vllm#12584: choices overwrote each other; there are exactly n, each its own."""
    reply = server.complete(**{**FREE, "max_tokens": 6}, prompt="The capital of France is", n=n, stream=stream)
    texts: dict[int, str] = {}
    for chunk in reply.events[:-1] if stream else [reply.json]:
        for choice in chunk["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    assert sorted(texts) == list(range(n))
    assert len(set(texts.values())) > 1


def test_more_choices_than_slots(narrow: RunningServer, server: RunningServer) -> None:
    """vllm-project/vllm#6646: a large n hung; four times the slots wait and finish, beyond the limit is a 400."""
    choices = narrow.complete(n=4, max_tokens=2, ignore_eos=True).json["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    for n in (129, 4096):
        refused(server.complete(n=n), "n", "128")


def test_logprobs_are_the_models(server: RunningServer) -> None:
    """ggml-org/llama.cpp#7197: probabilities were off where tokens were cut; they're the whole vocabulary's, sorted."""
    cut = server.chat(**GREEDY, top_k=2, top_p=0.5, logprobs=True, top_logprobs=4).json["choices"][0]["logprobs"]
    whole = server.chat(**GREEDY, logprobs=True, top_logprobs=4).json["choices"][0]["logprobs"]
    assert cut == whole
    for entry in cut["content"]:
        values = [each["logprob"] for each in entry["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert sum(map(math.exp, values)) <= 1
        assert len(values) == 4
        assert entry["logprob"] == values[0] <= 0


def test_a_token_outside_of_the_list_has_its_logprob(server: RunningServer, llm: LLM) -> None:
    """ggml-org/llama.cpp PR #10783: the chosen token is there whatever the list; top_logprobs 0 gives it alone."""
    (rare,) = llm.tokenizer.encode(" xyz", add_bos=False)[:1]
    fields = {"temperature": 0, "max_tokens": 1, "logit_bias": {str(rare): 100}, "logprobs": True}
    for count in (0, 3):
        (entry,) = server.chat(**fields, top_logprobs=count).json["choices"][0]["logprobs"]["content"]
        assert bytes(entry["bytes"]) == llm.tokenizer.token_bytes(rare)
        assert entry["logprob"] <= min([0.0, *(each["logprob"] for each in entry["top_logprobs"])])
        assert len(entry["top_logprobs"]) >= count
        assert bool(entry["top_logprobs"]) == bool(count)


@pytest.mark.parametrize("form", [{}, {"guided_regex": "[0-9]{4}"}], ids=["plain", "grammar"])
def test_logprobs_that_no_json_has(server: RunningServer, form: dict[str, Any]) -> None:
    """sgl-project/sglang#5984: an infinite logprob broke the JSON; every one is a finite number."""
    asked = {"prompt": "correct horse battery staple", "echo": True, "logprobs": 1, "temperature": 1, "top_k": 1}
    reply = server.complete(**asked, max_tokens=4, **form)
    assert b"Infinity" not in reply.body
    first, *values = reply.json["choices"][0]["logprobs"]["token_logprobs"]
    assert first is None
    assert all(math.isfinite(value) and value <= 0 for value in values)


@pytest.mark.parametrize(
    "bias", [{"191222": -100}, {"49152": 1}, {"-1": 1}, {"foo": 1}, {"5": 1e9}, {"5": "x"}], ids=str
)
def test_biases_outside_of_the_vocabulary(server: RunningServer, bias: Any) -> None:
    """vllm-project/vllm PR #16529: such ids crashed the engine or changed a neighbour's logits; they're refused."""
    refused(server.complete(logit_bias=bias), "logit_bias")


@pytest.mark.parametrize("token", [151645, 49152, -1])
def test_stop_ids_outside_of_the_vocabulary(server: RunningServer, token: int) -> None:
    """vllm-project/vllm#54195: as ids that stop, they're refused too."""
    refused(server.complete(stop_token_ids=[token]), "stop_token_ids", str(token))


def test_biases_that_force_and_ban(server: RunningServer) -> None:
    """vllm-project/vllm PR #16529: within the vocabulary, 100 forces a token and -100 bans it."""
    ids = [server.complete(**GREEDY, return_token_ids=True).json["choices"][0]["token_ids"][0]]
    for bias, is_it in ((-100, False), (100, True)):
        fields = {**GREEDY, "max_tokens": 4, "logit_bias": {str(ids[0]): bias}, "return_token_ids": True}
        found = server.complete(**fields).json["choices"][0]["token_ids"]
        assert [token == ids[0] for token in found] == [is_it] * len(found)


# --- Admission ---


@pytest.mark.parametrize(
    "prompt", [[200000], [49152], [-1], [[1], [999999]], [[1], [-1]], [1.5], ["1", 1], [True], [2**63]], ids=str
)
def test_ids_outside_of_the_vocabulary(server: RunningServer, prompt: Any) -> None:
    """sgl-project/sglang PR #31908: such ids of a prompt killed the process; they're refused, and none counts back."""
    reply = server.complete(prompt=prompt, max_tokens=16)
    refused(reply, None)
    assert reply.error["param"].startswith("prompt")


@pytest.mark.parametrize("path", [CHAT, COMPLETE])
@pytest.mark.parametrize(
    "body", [b"[]", b"true", b"null", b"123", b'"str"', b"", b"{", b'{"prompt": "\xfc"}', b'\xef\xbb\xbf{"prompt": 1}']
)
def test_bodies_that_are_no_object(server: RunningServer, path: str, body: bytes) -> None:
    """vllm-project/vllm PR #42961: JSON that is no object was a 500; it's a 400 in OpenAI's shape."""
    refused(server.post(path, body), None, "the body")


def test_fields_that_change_nothing(server: RunningServer) -> None:
    """vllm-project/vllm PR #10463: clients' own fields were refused; what changes no answer is taken."""
    function = {"name": "f", "strict": False, "parameters": {"type": "object"}}
    reply = server.chat(
        messages=[{"role": "user", "content": "Hello", "id": 5, "opts": {"visible": True}, "metadata": {"a": "b"}}],
        store=True,
        user="somebody",
        parallel_tool_calls=False,
        service_tier="auto",
        stream_options={"include_usage": True},
        tools=[{"type": "function", "function": function}],
        tool_choice="none",
        **GREEDY,
    )
    assert reply.json["choices"] == server.chat(**GREEDY).json["choices"]


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_content_in_parts(server: RunningServer, role: str) -> None:
    """OpenGVLab/InternVL#726: a list of parts was an error; texts are joined by line ends, images refused by name."""

    def ask(content: Any) -> Reply:
        messages = [{"role": role, "content": content}, {"role": "user", "content": "Hello"}]
        return server.chat(messages=messages, max_tokens=1, return_token_ids=True)

    parts = [{"type": "text", "text": each} for each in ("One", "two", "three.")]
    assert ask(parts).json["prompt_token_ids"] == ask("One\ntwo\nthree.").json["prompt_token_ids"]
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    refused(ask([*parts, image]), "messages[0].content[3].type", "image_url")


@pytest.mark.parametrize("path", [CHAT, COMPLETE])
def test_what_is_wrong_before_a_stream(server: RunningServer, path: str) -> None:
    """EricLBuehler/mistral.rs#1874: a stream with n 0 stayed open; it's a plain 400, before anything is begun."""
    reply = server.chat(stream=True, n=0) if path == CHAT else server.complete(stream=True, n=0)
    refused(reply, "n")
    assert reply.headers["content-type"] == "application/json"


def test_an_error_amid_a_stream(narrow: RunningServer, small: LLM) -> None:
    """ggml-org/llama.cpp PR #16109: the line began with "error:"; it's an event of data, and the stream's last."""
    with gated(small) as gate:
        replies: list[Reply] = []
        asking = threading.Thread(target=lambda: replies.append(narrow.complete(**FREE, stream=True)), daemon=True)
        asking.start()
        until(lambda: len(narrow.service.works) == 1, "it is there")
        gate.allow(3)
        until(lambda: gate.steps == 3, "three steps")
        gate.raises = ComputationError("a logit is NaN.")
        gate.allow(1)
        finishes(asking.join)
        gate.open()
    assert "a logit is NaN." in replies[0].events[-1]["error"]["message"]
    assert narrow.complete(max_tokens=1).status == 200


@pytest.mark.parametrize("path", [CHAT, COMPLETE])
@pytest.mark.parametrize(
    ("options", "wanted"),
    [({}, False), ({"stream_options": None}, False), ({"stream_options": {}}, False)]
    + [({"stream_options": {"include_usage": each}}, each) for each in (False, True)],
    ids=str,
)
def test_the_usage_of_a_stream(server: RunningServer, path: str, options: dict[str, Any], wanted: bool) -> None:
    """ggml-org/llama.cpp#15443: usage comes only where it's asked for, in a chunk without choices after the last."""
    asked = {**FREE, "stream": True, **options}
    *chunks, _ = (server.chat(**asked) if path == CHAT else server.complete(**asked)).events
    with_usage = [chunk for chunk in chunks if chunk.get("usage")]
    if not wanted:
        assert with_usage == []
        assert all(chunk["choices"] for chunk in chunks)
    else:
        assert with_usage == chunks[-1:]
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["completion_tokens"] == FREE["max_tokens"]


@pytest.mark.parametrize("waits", [False, True], ids=["runs", "queued"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_has_left(narrow: RunningServer, small: LLM, stream: bool, waits: bool) -> None:
    """vllm-project/vllm#9428: the answer of a client that had left was computed on; it ends within two steps."""
    body = {"prompt": "x", **FREE, "max_tokens": 200, "stream": stream}
    with gated(small) as gate, ExitStack() as first:
        if waits:
            first.enter_context(narrow.connection(COMPLETE, body))
            until(lambda: len(narrow.service.works) == 1, "the one before runs")
        with narrow.connection(COMPLETE, body):
            gate.step_until(lambda: in_engine(small) == 1 + waits, "it is there")
        until(lambda: len(narrow.service.works) == waits, "the server has noticed")
        steps = gate.steps
        gate.step_until(lambda: in_engine(small) == waits, "the engine has ended it")
        assert gate.steps <= steps + 2
        first.close()
        gate.open()
    until(lambda: in_engine(small) == 0, "nothing is left")
    small.engine().call(lambda core: core.check()).result(SECONDS)


def test_a_queue_that_is_full(narrow: RunningServer, small: LLM) -> None:
    """vllm-project/vllm#18826: the queue had no end; who finds no place gets a 429 at once and is told when to come."""
    body = {"prompt": "x", **FREE, "max_tokens": 200}
    replies: list[Reply] = []
    with gated(small) as gate:
        with ExitStack() as inside:
            for number in range(5):
                inside.enter_context(narrow.connection(COMPLETE, body))
                gate.step_until(lambda: in_engine(small) == number + 1, "it is there")  # noqa: B023 - called here alone
            asking = [
                threading.Thread(target=lambda: replies.append(narrow.post(COMPLETE, body)), daemon=True)
                for _ in range(15)
            ]
            for thread in asking:
                thread.start()
            gate.step_until(lambda: len(replies) == 15, "they are refused")
            assert in_engine(small) == 5
            assert narrow.get("/health").status == 200
        gate.open()
    assert {reply.status for reply in replies} == {429}
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in replies)
    until(lambda: in_engine(small) == 0, "those that were queued have left")
    assert narrow.complete(max_tokens=1).status == 200


@pytest.mark.parametrize(("begin", "end"), [(b"[", b"]"), (b'{"x":', b"}")], ids=["lists", "objects"])
@pytest.mark.parametrize("ended", [False, True])
def test_bodies_that_are_nested_deeply(server: RunningServer, begin: bytes, end: bytes, ended: bool) -> None:
    """antirez/ds4#43: ten thousand levels of JSON overflowed the parser; they're a 400."""
    body = b'{"x":' + begin * 10_000 + (b"1" + end * 10_000 + b"}" if ended else b"")
    refused(server.post(COMPLETE, body), None, "nested more than 64 levels")


def test_bodies_that_are_too_large(server: RunningServer) -> None:
    """antirez/ds4#43: the size of a body has a limit, too."""
    announced = {"Content-Length": str(server.service.settings.max_body_size + 1)}
    assert server.post(COMPLETE, b"{", announced).status == 413


# --- Chats ---


def test_no_bos_where_the_model_has_none(server: RunningServer, llm: LLM) -> None:
    """ggml-org/llama.cpp#6982: BOS was added against the file's word; SmolLM2's prompts have only the template's."""
    begin, *_ = llm.tokenizer.encode("<|im_start|>", add_bos=False, parse_special=True)
    chat = server.chat(max_tokens=1, return_token_ids=True).json["prompt_token_ids"]
    assert chat[0] == begin
    assert chat[1] != begin
    (plain,) = server.complete(prompt="Hello", max_tokens=1, return_token_ids=True).json["choices"]
    assert plain["prompt_token_ids"] == llm.tokenizer.encode("Hello", add_bos=False)


@pytest.mark.parametrize("arguments", ["{", "[1]", "Paris", '{"city": NaN}', '{"city": "Zürich"}'])
def test_the_arguments_of_calls_that_were_made(server: RunningServer, arguments: str) -> None:
    """QwenLM/Qwen3#1894: a call that came back made a template fail; what is wrong with it is named."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    if "Zürich" in arguments:
        refused(server.chat(messages=messages), "messages[1].tool_calls", "chat template leaves out")
    else:
        refused(server.chat(messages=messages), "messages[1].tool_calls[0].function.arguments")


# --- Answers of a form ---


def by_schema(schema: Any) -> dict[str, Any]:
    """The field that asks for it."""
    return {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": schema}}


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"a": {"type": "string", "pattern": "^hello(?! there)$"}}}, ".properties.a.pattern"),
        ({"properties": {"a": {"not": {"type": "string"}}}}, ".properties.a.not"),
    ],
)
def test_a_schema_that_can_not_be_enforced(server: RunningServer, schema: Any, place: str) -> None:
    """ggml-org/llama.cpp#24097: the answer was unconstrained, with a 200; it's a 400 that names the keyword's place."""
    refused(server.chat(response_format=by_schema(schema)), f"response_format.json_schema.schema{place}")


def test_a_pattern_with_a_needless_escape(server: RunningServer) -> None:
    r"""ggml-org/llama.cpp#19051: for "\!" the answer was unconstrained; the pattern is kept."""
    schema = {"type": "string", "pattern": "^hello there indeed\\!$"}
    reply = server.chat(temperature=0, max_tokens=40, response_format=by_schema(schema))
    assert json.loads(reply.json["choices"][0]["message"]["content"]) == "hello there indeed!"


@pytest.mark.parametrize("pattern", [r"^\d+$", r"\S", r"^\w{2,5}$", "b"])
def test_patterns_with_classes_and_without_ends(server: RunningServer, pattern: str) -> None:
    r"""ggml-org/llama.cpp#27580: "\d", "\S" and patterns without ends made every request fail; they're kept."""
    schema = {
        "type": "object",
        "properties": {"id": {"type": "string", "pattern": pattern, "maxLength": 6}},
        "required": ["id"],
        "additionalProperties": False,
    }
    (choice,) = server.chat(temperature=0, max_tokens=60, response_format=by_schema(schema)).json["choices"]
    assert choice["finish_reason"] == "stop"
    jsonschema.validate(json.loads(choice["message"]["content"]), schema)


def nested(levels: int) -> Any:
    """A schema so deep."""
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "(?<=x)+"},
        {"type": "string", "pattern": "(" * 10_000},
        {"type": "string", "pattern": "(" * 10_000 + "a" + ")" * 10_000},
        nested(60),
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    ],
    ids=["look-behind", "open", "deep", "nested", "itself", "cycle"],
)
def test_schemas_that_are_malformed_or_deep(server: RunningServer, schema: Any) -> None:
    """ggml-org/llama.cpp#25283: deep or malformed schemas overflowed the stack or never compiled; they're a 400."""
    refused(server.chat(response_format=by_schema(schema)), None)


def test_a_schema_of_five_thousand_levels(server: RunningServer) -> None:
    """kekzl/imp#1609: so is one that no parser of JSON should follow."""
    schema = b'{"items":' * 5000 + b"{}" + b"}" * 5000
    head = (
        b'{"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_schema", "json_schema": '
    )
    refused(server.post(CHAT, head + b'{"name": "a", "schema": ' + schema + b"}}}"), None, "nested")


def test_a_schema_that_refers_to_itself(server: RunningServer) -> None:
    """mlc-ai/xgrammar#207: an array whose objects have the array again crashed; the answer follows the schema."""
    schema: dict[str, Any] = {
        "$ref": "#/$defs/resources",
        "$defs": {
            "resources": {
                "type": "array",
                "maxItems": 1,
                "items": {
                    "type": "object",
                    "properties": {"PathPart": {"enum": ["{proxy+}"]}, "childresources": {"$ref": "#/$defs/resources"}},
                    "required": ["PathPart"],
                    "additionalProperties": False,
                },
            }
        },
    }
    for seed in (1, 2):
        fields = {"temperature": 1, "seed": seed, "max_tokens": 200, "response_format": by_schema(schema)}
        (choice,) = server.chat(**fields).json["choices"]
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(choice["message"]["content"]), schema)
