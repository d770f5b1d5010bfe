"""``/v1/embeddings``: OpenAI's shape, by hand and through its own client; what is refused, and by what name."""

import base64
from typing import Any

import numpy as np
import openai
import pytest

from cutaway import LLM
from support.http_server import RunningServer, running, until
from support.patience import SECONDS

PATH = "/v1/embeddings"


def test_as_from_python(server: RunningServer, llm: LLM) -> None:
    """One text, several, ids, lists of ids: the same vectors, in both encodings."""
    texts = ["The sea is", "Gravity"]
    ids = [llm.tokenizer.encode(text) for text in texts]
    want = [each.outputs.embedding for each in llm.embed(texts)]
    for given, count in ((texts, 2), (ids, 2), (texts[0], 1), (ids[0], 1)):
        reply = server.post(PATH, {"input": given}).json
        assert [each["embedding"] for each in reply["data"]] == want[:count]
        assert [(each["index"], each["object"]) for each in reply["data"]] == [(n, "embedding") for n in range(count)]
        tokens = sum(map(len, ids[:count]))
        assert reply["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
        assert (reply["object"], reply["model"]) == ("list", "smollm2")
        assert reply["cutaway"] == {"pooling": "last", "normalized": True, "dimensions": 576}
    encoded = server.post(PATH, {"input": texts, "encoding_format": "base64", "pooling": "mean"}).json
    vectors = [np.frombuffer(base64.b64decode(each["embedding"]), "<f4").tolist() for each in encoded["data"]]
    assert vectors == [each.outputs.embedding for each in llm.embed(texts, pooling="mean")]
    assert encoded["cutaway"]["pooling"] == "mean"


def test_openais_client(server: RunningServer, llm: LLM) -> None:
    """It asks for base64 unless it is told otherwise, and decodes it."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=SECONDS) as client:
        found = client.embeddings.create(model="smollm2", input=["The sea is"], dimensions=576, user="somebody")
        assert found.data[0].embedding == llm.embed("The sea is")[0].outputs.embedding
        assert found.usage.prompt_tokens == 3
        plain = client.embeddings.create(model="smollm2", input="The sea is", encoding_format="float")
        assert plain.data[0].embedding == found.data[0].embedding
        with pytest.raises(openai.BadRequestError) as refused:
            client.embeddings.create(model="smollm2", input="x", dimensions=64)
        assert refused.value.param == "dimensions"


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"input": None}, "input", "input is None; it must be a text"),
        ({"input": ""}, "input", "input is empty; it must have at least 1 token"),
        ({"input": []}, "input", "none of them empty"),
        ({"input": ["a", ""]}, "input[1]", "input[1] is empty"),
        ({"input": [[1], []]}, "input[1]", "none of them empty"),
        ({"input": ["a", 1]}, "input[1]", "input[1] is 1"),
        ({"input": [49152]}, "input[0]", "input[0] is 49152; it must be an integer from 0 to 49151"),
        ({"input": [[1, 2], [3, -1]]}, "input[1][1]", "input[1][1] is -1"),
        ({"input": ["a", "\ud83d"]}, "input[1]", "lone surrogate"),
        ({"input": ["x", [5] * 1025]}, "input[1]", "input[1] has 1025 tokens; the context holds 1024"),
        ({"input": ["x"] * 1025}, "input", "input has 1025 prompts; the limit is 1024"),
        ({"encoding_format": "int8"}, "encoding_format", "encoding_format is 'int8'; it must be float or base64"),
        ({"encoding_format": ["float"]}, "encoding_format", "['float']"),
        ({"dimensions": 256}, "dimensions", "this model's vectors have 576"),
        ({"dimensions": 576.0}, "dimensions", "576.0"),
        ({"pooling": "cls"}, "pooling", "pooling is 'cls'; it must be one of last, mean"),
        ({"pooling": ["mean"]}, "pooling", "['mean']"),
        ({"model": "text-embedding-3-small"}, "model", "here is 'smollm2'"),
        ({"temperature": 0}, "temperature", "'temperature' is no field of this request"),
        ({"truncate_prompt_tokens": 5}, "truncate_prompt_tokens", "Shorten the prompt yourself"),
    ],
    ids=lambda value: None if isinstance(value, dict) else str(value)[:20],
)
def test_what_is_refused(server: RunningServer, fields: dict[str, Any], param: str, words: str) -> None:
    reply = server.post(PATH, {"input": "x", **fields})
    assert reply.status == (404 if param == "model" else 400)
    assert (reply.error["param"], words in reply.error["message"]) == (param, True), reply.error
    assert server.post(PATH, {}).error["message"] == "input is missing; it is required. Add it."


def test_it_is_counted_and_leaves_nothing(llm: LLM) -> None:
    with running(llm, api_keys=("a", "b")) as server:
        prompt = "A text to be embedded that is long enough to fill some blocks of the cache. " * 4
        body = {"input": [prompt, "another"]}
        for key in ("a", "a", "b"):
            assert server.post(PATH, body, {"Authorization": f"Bearer {key}"}).status == 200
        until(lambda: not server.service.works, "all have ended")
        text = server.get("/metrics", Authorization="Bearer a").body.decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    label = f'{{model_name="{llm.model.name}"}}'
    tokens = sum(len(llm.tokenizer.encode(each)) for each in body["input"])
    assert float(lines[f"cutaway:prompt_tokens_total{label}"]) == 3 * tokens
    assert float(lines[f"cutaway:generation_tokens_total{label}"]) == 0
    hits = float(lines[f"cutaway:prefix_cache_hits_total{label}"])
    assert tokens - 32 < hits <= tokens, "the second of the first key's, and not the other key's"
    assert float(lines[f"cutaway:e2e_request_latency_seconds_count{label}"]) == 6
    reason = f'cutaway:request_success_total{{finished_reason="stop",model_name="{llm.model.name}"}}'
    assert float(lines[reason]) == 6


def test_a_client_that_leaves(llm: LLM) -> None:
    """All its prompts are ended."""
    with running(llm) as server:
        with server.connection(PATH, {"input": [[each % 400 + 1] * 1000 for each in range(60)], "pooling": "mean"}):
            until(lambda: len(server.service.works) == 1, "it is there")
        until(lambda: len(server.service.works) == 0, "it has left")
        until(lambda: llm.engine().call(lambda core: not core.has_work).result(SECONDS), "nothing runs")
