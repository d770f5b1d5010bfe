"""The routes beside OpenAI's: the tokenizer, the slots, the metrics, the document of them all."""

import http.client
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cutaway import LLM
from cutaway.server.metrics import EngineState, Metrics
from support.gate import gated
from support.http_server import RunningServer, running, until

MESSAGES = [{"role": "user", "content": "Hello"}]


def test_tokenize(server: RunningServer, llm: LLM) -> None:
    text = "Hello 😀 world<|im_end|>"
    ids = llm.tokenizer.encode(text)
    for name in ("prompt", "content"):
        reply = server.post("/tokenize", {name: text, "return_token_strs": True, "add_special_tokens": True}).json
        assert reply["tokens"] == ids
        assert (reply["count"], reply["max_model_len"]) == (len(ids), 1024)
        assert reply["token_strs"] == [llm.tokenizer.piece(token) for token in ids]
    special = server.post("/tokenize", {"prompt": text, "parse_special": True}).json["tokens"]
    assert special == llm.tokenizer.encode(text, parse_special=True) != ids
    chat = server.post("/tokenize", {"messages": MESSAGES, "model": "smollm2"}).json["tokens"]
    assert chat == llm.tokenizer.encode_chat(MESSAGES)
    assert server.post("/tokenize", {"prompt": ""}).json["tokens"] == []


def test_detokenize_and_apply_template(server: RunningServer, llm: LLM) -> None:
    ids = llm.tokenizer.encode_chat(MESSAGES)
    text = llm.tokenizer.decode(ids, skip_special=False)
    assert "<|im_start|>" in text
    assert server.post("/detokenize", {"tokens": ids}).json == {"prompt": text, "content": text}
    assert "<|im_start|>" not in server.post("/detokenize", {"tokens": ids, "skip_special_tokens": True}).json["prompt"]
    assert server.post("/detokenize", {"tokens": []}).json["prompt"] == ""
    assert server.post("/apply-template", {"messages": MESSAGES}).json == {"prompt": text}
    opened = [*MESSAGES, {"role": "assistant", "content": "Well,"}]
    assert server.post("/apply-template", {"messages": opened}).json["prompt"].endswith("Well,")


def test_tokenizer_info(server: RunningServer, llm: LLM) -> None:
    """The control tokens by their texts, which /tokenize turns into ids; the template as the model file has it."""
    info = server.get("/tokenizer_info").json
    assert info == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "chat_template": llm.tokenizer.chat_template,
    }
    assert "{% for message in messages %}" in info["chat_template"]
    for name, token in (("bos_token", 1), ("eos_token", 2)):
        assert server.post("/tokenize", {"prompt": info[name], "parse_special": True}).json["tokens"] == [token]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "content": "a"}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": MESSAGES}, "prompt"),
        ("/tokenize", {"prompt": "\ud83d"}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"prompt": "a", "zzz": 1}, "zzz"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [1, -1]}, "tokens[1]"),
        ("/detokenize", {"tokens": [49152]}, "tokens[0]"),
        ("/detokenize", {"tokens": [1.0]}, "tokens[0]"),
        ("/detokenize", {"tokens": [True]}, "tokens[0]"),
        ("/detokenize", {"tokens": "abc"}, "tokens"),
        ("/apply-template", {"messages": []}, "messages"),
        ("/apply-template", {"messages": [{"role": "user"}]}, "messages[0].content"),
    ],
)
def test_what_these_refuse(server: RunningServer, path: str, body: dict[str, Any], param: str) -> None:
    reply = server.post(path, body)
    assert (reply.status, reply.error["param"]) == (400, param)
    other = server.post(path, {**body, "model": "gpt-4o"})
    assert other.status in (400, 404)


@pytest.fixture(scope="module")
def small(smollm2_path: Path) -> Iterator[LLM]:
    """Two sequences run."""
    with LLM(smollm2_path, threads=1, max_model_len=256, max_num_seqs=2) as llm:
        yield llm


def test_slots(small: LLM) -> None:
    """Of the asking key's requests all but the text; of others' the counts."""
    prompt = "A text that fills more than one block of sixteen tokens, so that there is something to be seen."
    keys = [{"Authorization": f"Bearer {name}"} for name in ("mine", "others")]
    with gated(small) as gate, running(small, api_keys=("mine", "others")) as server:
        body = {"prompt": prompt, "max_tokens": 200, "ignore_eos": True, "stream": True}
        found: list[dict[str, Any]] = []
        counted: dict[str, float] = {}
        with server.connection("/v1/completions", body | {"n": 2}) as refused:
            assert refused.recv(12) == b"HTTP/1.1 401"
        streams = [_Stream(server, body | {"n": 2}, keys[0])]
        gate.step_until(lambda: len(server.service.works) == 1, "the first is there")
        streams.append(_Stream(server, body, keys[1]))
        gate.step_until(lambda: len(server.service.works) == 2, "both are there")

        def ask() -> None:
            found.extend(server.get("/slots", **key).json for key in keys)
            counted.update(values(server.get("/metrics", **keys[0]).body.decode()))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        gate.step_until(lambda: not asking.is_alive(), "it is answered between two steps")
        gate.open()
        for stream in streams:
            stream.leave()
        until(lambda: len(server.service.works) == 0, "both have left")
        last = server.get("/slots", **keys[0]).json
    mine, others = found
    assert len(mine["sequences"]) == 2
    assert mine["others"] == {"running": 0, "waiting": 1, "blocks": 0}
    assert len(others["sequences"]) == 1
    assert others["others"]["running"] == 2
    for each in mine["sequences"]:
        assert each["id"].startswith("cmpl-")
        assert each["state"] == "running"
        assert each["reason"].startswith("admitted: ")
        assert each["prompt_tokens"] == len(small.tokenizer.encode(prompt))
        assert each["generated_tokens"] >= 1
        length = mine["blocks"]["length"]
        assert len(each["blocks"]) * length >= each["computed_tokens"] > (len(each["blocks"]) - 1) * length - 1
    assert others["sequences"][0]["state"] == "waiting"
    assert others["sequences"][0]["blocks"] == []
    blocks = mine["blocks"]
    assert blocks["held"] + blocks["cached"] + blocks["free"] == blocks["total"]
    assert blocks["cached_blocks"] is None, "some may be another's"
    assert blocks["held"] == len({block for each in mine["sequences"] for block in each["blocks"]})
    assert "fills" not in str(found)
    label = f'{{model_name="{small.model.name}"}}'
    assert counted[f"cutaway:num_requests_running{label}"] == 2
    assert counted[f"cutaway:num_requests_waiting{label}"] == 1
    assert counted[f"cutaway:kv_cache_usage_perc{label}"] >= blocks["held"] / blocks["total"] > 0
    assert last["sequences"] == []
    assert last["others"] == {"running": 0, "waiting": 0, "blocks": 0}
    assert last["blocks"]["held"] == 0


class _Stream:
    """A streamed completion that nobody reads, with a key."""

    def __init__(self, server: RunningServer, body: dict[str, Any], key: dict[str, str]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port)
        headers = {"Content-Type": "application/json", **key}
        self._connection.request("POST", "/v1/completions", json.dumps(body), headers)

    def leave(self) -> None:
        """Close the connection."""
        self._connection.close()


def values(text: str) -> dict[str, float]:
    """The samples of an exposition, by name and labels."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_metrics(small: LLM) -> None:
    """Counted by hand: three requests, of which one is cut by its client."""
    with running(small, served_names=("named",)) as server:
        first = server.complete(prompt="One two three", max_tokens=5, ignore_eos=True, n=2).json
        server.chat(max_tokens=3, ignore_eos=True, stream=True)
        server.complete(temperature=7)
        with server.connection("/v1/completions", {"prompt": "x", "max_tokens": 250, "ignore_eos": True}):
            until(lambda: len(server.service.works) == 1, "it is there")
        until(lambda: len(server.service.works) == 0, "it has left")
        reply = server.get("/metrics")
        chat = server.post("/tokenize", {"messages": [{"role": "user", "content": "Hello"}]}).json["count"]
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = values(reply.body.decode())
    label = '{model_name="named"}'

    def ended(reason: str) -> float:
        return found[f'cutaway:request_success_total{{finished_reason="{reason}",model_name="named"}}']

    assert ended("length") == 3
    assert ended("abort") == 1
    assert found[f"cutaway:num_requests_running{label}"] == 0
    assert found[f"cutaway:num_requests_waiting{label}"] == 0
    assert found[f"cutaway:kv_cache_usage_perc{label}"] == 0
    prompts = first["usage"]["prompt_tokens"] + chat
    cut = found[f"cutaway:prompt_tokens_total{label}"] - prompts
    assert cut in (0, 1)  # it may have left before its one token was computed
    assert found[f"cutaway:generation_tokens_total{label}"] >= 13
    assert found[f"cutaway:e2e_request_latency_seconds_count{label}"] == 3
    assert found[f"cutaway:request_params_n_sum{label}"] == 4
    assert found[f"cutaway:time_to_first_token_seconds_count{label}"] == 2 + cut
    assert found[f"cutaway:inter_token_latency_seconds_count{label}"] >= 2 * 4 + 2
    assert found[f"cutaway:prefix_cache_queries_total{label}"] == prompts + cut
    assert 'cutaway:key_tokens_total{key="",kind="prompt",model_name="named"}' in found


def test_preemptions_are_counted_once() -> None:
    """However often somebody looks."""
    metrics = Metrics("m")
    for so_far in (0, 3, 3, 5):
        text = metrics.exposition(EngineState(0, 0, 0, so_far)).decode()
        assert values(text)['cutaway:num_preemptions_total{model_name="m"}'] == so_far


def test_the_names_are_vllms() -> None:
    """As of vLLM's documentation; a dashboard for it works after changing the prefix."""
    text = Metrics("m").exposition(EngineState(0, 0, 0, 0)).decode()
    names = set(re.findall(r"^# TYPE cutaway:(\w+)", text, re.MULTILINE))
    assert names >= {
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "num_preemptions_total",
        "prompt_tokens_total",
        "generation_tokens_total",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        "request_success_total",
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "request_prompt_tokens",
        "request_generation_tokens",
        "request_params_n",
    }


def test_the_openapi_document(server: RunningServer) -> None:
    """Every route with its body, its errors in their shape, and no reference that leads nowhere."""
    document = server.get("/openapi.json").json
    assert set(document["paths"]) == {
        "/health",
        "/version",
        "/v1/models",
        "/v1/models/{name}",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/responses/{name}",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/tokenize",
        "/detokenize",
        "/apply-template",
        "/tokenizer_info",
        "/slots",
        "/metrics",
        "/ledger",
    }
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert "422" not in operation["responses"], path
            assert operation["responses"]["4XX"]["content"]["application/json"]["schema"]
            assert operation.get("description") or operation.get("summary")
    for path, methods in document["paths"].items():
        content = next(iter(methods.values()))["responses"]["4XX"]["content"]["application/json"]
        name = content["schema"]["$ref"].rpartition("/")[2]
        assert name == ("AnthropicErrorReply" if path.startswith("/v1/messages") else "ErrorReply")
    schemas = document["components"]["schemas"]
    for name in re.findall(r"'#/components/schemas/(\w+)'", str(document)):
        assert name in schemas
    chat = schemas["ChatRequest"]["properties"]
    assert chat["temperature"]["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 2}
    assert {"messages", "top_k", "stream", "max_completion_tokens", "continue_final_message"} <= set(chat)
    assert all(each.get("description") for name, each in chat.items() if name != "stream_options")


def test_which_blocks_are_cached(small: LLM) -> None:
    """Who is the only client is told where they are."""
    prompt = "A text that fills more than one block of sixteen tokens, so that there is something to be seen."
    for keys in ((), ("only",)):
        small.reset_prefix_cache()
        headers = {"Authorization": "Bearer only"}
        with running(small, api_keys=keys) as server:
            assert server.get("/slots", **headers).json["blocks"]["cached_blocks"] == []
            assert server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1}, headers).status == 200
            until(lambda: not server.service.works, "it has ended")
            blocks = server.get("/slots", **headers).json["blocks"]
        assert blocks["cached"] == len(blocks["cached_blocks"]) == len(set(blocks["cached_blocks"])) >= 1
        assert all(0 <= block < blocks["total"] for block in blocks["cached_blocks"])
