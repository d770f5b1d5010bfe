"""Records in tests: made under random schedules, and changed by somebody who knows how the hashes are made.

In: a loaded engine, or the contents of lines. Out: requests that came and went; a file whose chain is right again.
"""

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np

from cutaway import LLM, SamplingParams
from cutaway.audit.record.read_record import read_record
from cutaway.audit.record.recorded import RecordedRequest
from support.patience import SECONDS

Content = dict[str, Any]
SHARED: list[int] = np.random.default_rng(31).integers(100, 40000, 40).tolist()
"""What many prompts begin with, so that the prefix cache has work."""


def random_params(rng: np.random.Generator, longest: int) -> SamplingParams:
    """Any of the parameters that have a part in sampling."""
    kinds: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 0.8},
        {"temperature": 1.3, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
        {"temperature": 0.7, "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.2},
        {"temperature": 1.0, "n": 2, "logprobs": 2},
        {"temperature": 0.9, "prompt_logprobs": 1, "logprobs": 0},
        {"temperature": 0.9, "logit_bias": {5: 2.5, 260: 3.25}, "min_tokens": 2, "bad_words": ["the"]},
        {"temperature": 1.1, "allowed_token_ids": [28, 30, 253, 260, 282, 284, 288, 314]},
        {"temperature": 1.0, "structured_outputs": {"choice": ["Paris", "London", "The sea"]}},
        {"temperature": 1.0, "stop": ["e"], "include_stop_str_in_output": True},
    ]
    seed = {} if rng.random() < 0.2 else {"seed": int(rng.integers(-(2**62), 2**62))}
    return SamplingParams(max_tokens=int(rng.integers(2, longest + 1)), **seed, **kinds[int(rng.integers(len(kinds)))])


def random_prompt(rng: np.random.Generator) -> list[int]:
    """From one token to some dozens, often with a beginning that others have."""
    return SHARED[: int(rng.integers(0, 40))] + rng.integers(100, 40000, int(rng.integers(1, 30))).tolist()


def run_schedule(llm: LLM, seed: int, longest: int = 5) -> None:
    """Some requests at once, and beside them one that begins at any moment and may be left; sometimes an embedding.
    longest: tokens of an answer.
    """
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 4))
    prompts, params = [random_prompt(rng) for _ in range(count)], [random_params(rng, longest) for _ in range(count)]
    together = threading.Thread(target=lambda: llm.generate(prompts, params, use_tqdm=False), daemon=True)
    together.start()
    stream = llm.stream(random_prompt(rng), random_params(rng, longest))
    for _ in range(int(rng.integers(0, 3))):
        next(stream, None)
    if rng.random() < 0.3:
        stream.close()
    if rng.random() < 0.2:
        llm.embed([random_prompt(rng)], pooling="mean" if rng.random() < 0.5 else "last", use_tqdm=False)
    stream.run()
    together.join(SECONDS)
    assert not together.is_alive()


def contents(path: Path) -> list[Content]:
    """The lines, without their hashes."""
    return [{k: v for k, v in json.loads(line).items() if k != "hash"} for line in path.read_bytes().splitlines()]


def whole_requests(path: Path) -> list[RecordedRequest]:
    """All requests of a record, each with its lines."""
    return [each.read() for session in read_record(path).sessions for each in session.requests]


def write_chained(path: Path, lines: list[Content]) -> Path:
    """A record of these lines, all hashes made anew, as docs/record.md says: by whoever wants to be believed."""
    link, number = "", 0  # of headers and receipts
    header = ""
    last: dict[str, str] = {}
    written = []
    for given in lines:
        line = dict(given)
        request = str(line.get("request"))
        if line["kind"] == "header":
            line["previous"], line["receipts"], before = link, number, link
        elif line["kind"] == "begin":
            before = header
        elif line["kind"] == "receipt":
            line |= {"number": number + 1, "root": last[request], "header": header, "previous": link}
            before = link
        else:
            before = last[request]
        body = json.dumps(line, separators=(",", ":"))[:-1]
        hashed = hashlib.sha256(before.encode() + body.encode()).hexdigest()
        written.append(f'{body},"hash":"{hashed}"}}\n')
        if line["kind"] in ("header", "receipt"):
            link = hashed
            header = hashed if line["kind"] == "header" else header
            number += line["kind"] == "receipt"
        else:
            last[request] = hashed
    path.write_text("".join(written))
    return path
