"""One request over the command line, Python, and a stream: the same tokens, the same text, the same logprobs."""

import json
from pathlib import Path
from typing import Any

from command import cutaway

from cutaway import LLM, SamplingParams
from cutaway.engine.outputs import Logprob

QUESTION = "Name two colours. Schreibe auch 😀 dazu."
ASKED: dict[str, Any] = {
    "temperature": 0.9,
    "top_k": 50,
    "top_p": 0.95,
    "min_p": 0.01,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.2,
    "frequency_penalty": 0.1,
    "seed": -7,
    "max_tokens": 40,
    "min_tokens": 5,
    "logprobs": 4,
}


def listed(logprobs: list[dict[int, Logprob]]) -> list[list[tuple[int, str, int, float]]]:
    """Every entry of every position, by rank."""
    return [
        sorted(
            ((token, each.decoded_token, each.rank, each.logprob) for token, each in entries.items()),
            key=lambda entry: entry[2],
        )
        for entries in logprobs
    ]


def test_one_request_three_ways(smollm2_path: Path) -> None:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in ASKED.items()]
    result = cutaway("run", "smollm2", QUESTION, *options, "--stop=zzz", "--json", "--threads=1", "--kv=contiguous")
    assert result.returncode == 0, result.stderr
    printed = json.loads(result.stdout)
    params = SamplingParams(**ASKED, stop=["zzz"])
    messages = [{"role": "user", "content": QUESTION}]
    with LLM(smollm2_path, threads=2, max_model_len=512) as llm:
        whole = llm.chat(messages, params)[0].outputs[0]
        stream = llm.stream_chat(messages, params)
        deltas = list(stream)
    assert printed["token_ids"] == whole.token_ids == [token for delta in deltas for token in delta.token_ids]
    assert printed["text"] == whole.text == "".join(delta.text for delta in deltas)
    assert printed["finish_reason"] == whole.finish_reason == deltas[-1].finish_reason
    assert whole.logprobs is not None
    of_deltas = [entries for delta in deltas for entries in delta.logprobs or ()]
    of_json = [
        [(each["token_id"], each["text"], each["rank"], each["logprob"]) for each in entries]
        for entries in printed["logprobs"]
    ]
    assert of_json == listed(whole.logprobs) == listed(of_deltas)
    assert printed["parameters"]["seed"] == printed["seed"] == -7
    assert stream.output().outputs[0] == whole
