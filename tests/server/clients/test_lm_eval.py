"""EleutherAI's evaluation harness, unmodified, over tasks of a few items: its numbers are the engine's own.

It has no tokenizer of its own here, and no hub: it finds out by itself that the server tokenizes.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cutaway import LLM, SamplingParams
from support.clients import needs_clients, run
from support.http_server import RunningServer

pytestmark = needs_clients

TASKS = Path(__file__).parent / "fixtures" / "lm_eval"


def evaluate(
    server: RunningServer, folder: Path, tasks: Sequence[str], batch_size: int = 1, **options: object
) -> tuple[Any, Any]:
    """The results by task, and by task the samples in the order of the documents. options: of the harness's model."""
    given = {"model": "smollm2", "base_url": f"{server.url}/v1/completions", "max_length": 1024, **options}
    joined = ",".join(f"{name}={value}" for name, value in given.items())
    command = [
        "-m",
        "lm_eval",
        "run",
        "--model",
        "local-completions",
        "--model_args",
        joined,
        "--batch_size",
        str(batch_size),
    ]
    command += ["--tasks", ",".join(tasks), "--include_path", str(TASKS), "--log_samples", "--output_path", str(folder)]
    cache = {"HF_HOME": folder / "hf", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    for path in TASKS.glob("*.jsonl"):  # the harness looks for a task's data where it is started
        (folder / path.name).write_bytes(path.read_bytes())
    run(command, folder=folder, **cache)
    (results,) = folder.rglob("results_*.json")
    samples = {}
    for task in tasks:
        (path,) = folder.rglob(f"samples_{task}_*.jsonl")
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        unique = {line["doc_id"]: line for line in lines}
        samples[task] = [unique[number] for number in sorted(unique)]
    return json.loads(results.read_text("utf-8"))["results"], samples


def documents(name: str) -> list[Any]:
    return [json.loads(line) for line in (TASKS / f"{name}.jsonl").read_text("utf-8").splitlines()]


def likelihood(llm: LLM, context: str, continuation: str) -> tuple[float, bool]:
    """The engine's own: the sum of the continuation's logprobs behind the context, and whether each was the likeliest.

    The whole is encoded, and split at the context's length, as the harness does.
    """
    ids = llm.tokenizer.encode(context + continuation, add_bos=False)
    return scored(llm, ids, len(llm.tokenizer.encode(context, add_bos=False)))


def scored(llm: LLM, ids: list[int], start: int) -> tuple[float, bool]:
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
    scores = llm.generate(ids, params, use_tqdm=False)[0].prompt_logprobs
    assert scores is not None
    entries = [at[token] for token, at in zip(ids[start:], scores[start:], strict=True) if at is not None]
    assert len(entries) == len(ids) - start
    return sum(entry.logprob for entry in entries), all(entry.rank == 1 for entry in entries)


def answers(sample: Any) -> list[tuple[float, bool]]:
    """What the harness has kept of a document's requests."""
    kept = []
    for (found,) in sample["resps"]:
        value, greedy = found
        kept.append((float(value), str(greedy) == "True"))
    return kept


WAYS: dict[str, dict[str, Any]] = {
    "ids, one by one": {},
    "texts, in batches": {"tokenized_requests": False, "batch_size": 3},
    "ids, several at once": {"num_concurrent": 4, "batch_size": 2},
}
ALL = ("cutaway_choices", "cutaway_last_words", "cutaway_texts", "cutaway_answers")


@pytest.fixture(scope="module", params=WAYS.values(), ids=WAYS)
def evaluated(
    request: pytest.FixtureRequest, server: RunningServer, llm: LLM, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Any]:
    """All tasks in one go: the harness takes long to start."""
    options = {**request.param, "custom_prefix_token_id": prefix(llm)}
    return evaluate(server, tmp_path_factory.mktemp("lm_eval"), ALL, **options)


def prefix(llm: LLM) -> int:
    """The token before a whole text: a line end. The harness would take BOS, whose spelling is text to the server."""
    (line_end,) = llm.tokenizer.encode("\n", add_bos=False)
    return line_end


def test_choices(evaluated: tuple[Any, Any], llm: LLM) -> None:
    """The loglikelihoods are the engine's own to the last bit, and so are the numbers that are made of them."""
    results, samples = evaluated
    right = 0
    for document, sample in zip(documents("choices"), samples["cutaway_choices"], strict=True):
        context = f"Question: {document['question']}\nAnswer:"
        want = [likelihood(llm, context, f" {choice}") for choice in document["choices"]]
        assert answers(sample) == want
        sums = [value for value, _ in want]
        right += sums.index(max(sums)) == document["answer"]
    assert results["cutaway_choices"]["acc,none"] == right / 4


def test_last_words(evaluated: tuple[Any, Any], llm: LLM) -> None:
    """Whether a continuation is the likeliest, too."""
    results, samples = evaluated
    greedy = []
    for document, sample in zip(documents("last_words"), samples["cutaway_last_words"], strict=True):
        want = likelihood(llm, document["text"], document["last"])
        assert answers(sample) == [want]
        greedy.append(want[1])
    assert set(greedy) == {True, False}, "items of both kinds, so that the test can fail"
    assert results["cutaway_last_words"]["acc,none"] == sum(greedy) / len(greedy)


def test_whole_texts(evaluated: tuple[Any, Any], llm: LLM) -> None:
    """Behind the prefix, every token of them."""
    for document, sample in zip(documents("texts"), evaluated[1]["cutaway_texts"], strict=True):
        ids = [prefix(llm), *llm.tokenizer.encode(document["text"], add_bos=False)]
        ((found,),) = sample["resps"]
        assert float(found) == scored(llm, ids, 1)[0]


def test_generated_answers(evaluated: tuple[Any, Any], llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=12, stop=["\n"])
    for document, sample in zip(documents("choices"), evaluated[1]["cutaway_answers"], strict=True):
        want = llm.generate(f"Question: {document['question']}\nAnswer:", params, use_tqdm=False)[0].outputs[0].text
        assert sample["resps"] == [[want]]
