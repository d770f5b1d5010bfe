"""Every operation of an open step is hashed, of every family: the same however a prompt is cut, in the order in which
they run.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cutaway import LLM, Record, SamplingParams, TapRequest
from cutaway.audit.record.levels import OPERATIONS, TENSORS
from cutaway.audit.record.operations import DIGEST, OpenStep, Operation, Operations, Rows, SequenceHashes
from cutaway.audit.record.verify import verify
from cutaway.engine.runner import ModelRunner
from cutaway.formats.gguf import open_gguf
from cutaway.model.batch import Piece, make_batch
from cutaway.model.shapes import taps_of
from cutaway.sampling.sampler import NoiseKey, noise_row
from cutaway.scheduler.step import Step, StepPiece
from support.records import SHARED, run_schedule, whole_requests
from support.tiny_families import PROMPTS, write_case

IDS = PROMPTS["prompt 5"]


@pytest.fixture(params=["llama", "smollm3", "gemma2", "gemma3", "phi3", "gpt2", "qwen3"], scope="module")
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelRunner]:
    path = write_case(tmp_path_factory.mktemp("tiny") / "tiny.gguf", request.param)
    with open_gguf(path) as gguf, ModelRunner(gguf, threads=1, context=64, max_tokens=64, max_outputs=4) as loaded:
        yield loaded


class Kept:
    """Rows as they were."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Operation, int], np.ndarray] = {}

    def take(self, request_id: str, choices: Any, rows: Rows) -> None:
        for number, row in enumerate(rows.values):
            self.rows[rows.operation, rows.position + number] = np.array(row)


def run(runner: ModelRunner, parts: list[tuple[int, int]], beside: int = 0) -> tuple[SequenceHashes, Kept, list[Any]]:
    """The prompt in these parts, maybe some computed again, maybe beside another sequence that nobody records."""
    operations, kept, heard = Operations(runner.config), Kept(), []
    hashes = SequenceHashes(1, len(operations.order))
    for start, end in parts:
        ends = end == len(IDS)
        sequence: Any = SimpleNamespace(request=SimpleNamespace(id="0", hidden=None), choices=(0,), scores_prompt=False)
        pieces = [StepPiece(sequence, start, end - start, (0,) if ends else ())]
        batch = [Piece(start, IDS[start:end], [0, 1, 2], int(ends))]
        if beside:
            other: Any = SimpleNamespace(
                request=SimpleNamespace(id="1", hidden=None), choices=(0,), scores_prompt=False
            )
            pieces.insert(0, StepPiece(other, 0, beside, (0,)))
            batch.insert(0, Piece(0, IDS[::-1][:beside], [3], 1))
        opened = OpenStep(Step(0, pieces), operations, {"0": hashes}, kept)

        def tap(name: str, layer: int, array: Any, opened: OpenStep = opened) -> None:
            heard.append((name, layer))
            if (name, layer) in opened.wanted:
                opened.see(name, layer, array)

        runner.step_open(make_batch(batch), tap)
        opened.commit()
    return hashes, kept, heard


def test_the_order_is_that_of_the_forward(runner: ModelRunner) -> None:
    _, _, heard = run(runner, [(0, len(IDS))])
    has = taps_of(runner.config)
    assert [tuple(each) for each in Operations(runner.config).order] == [each for each in heard if each[0] in has]


@pytest.mark.parametrize(
    ("parts", "beside"),
    [([(0, 7), (7, 8), (8, len(IDS))], 0), ([(0, len(IDS))], 5), ([(0, 9), (0, 9), (4, len(IDS))], 3)],
    ids=["in parts", "beside another", "computed again"],
)
def test_hashes_do_not_depend_on_the_schedule(runner: ModelRunner, parts: list[tuple[int, int]], beside: int) -> None:
    whole, rows, _ = run(runner, [(0, len(IDS))])
    hashes, own, _ = run(runner, parts, beside)
    assert hashes.digests(0) == whole.digests(0)
    assert hashes.length(0) == len(IDS)
    assert len(set(own.rows)) == len(rows.rows)
    for place, row in rows.rows.items():
        assert own.rows[place].tobytes() == row.tobytes(), place


def test_each_operation_has_a_part(runner: ModelRunner) -> None:
    """A difference in any is found there, and what is hashed are the numbers that the operation wrote."""
    operations = Operations(runner.config)
    hashes, kept, _ = run(runner, [(0, len(IDS))])
    digests = hashes.digests(0)
    assert len(digests) == DIGEST * len(operations.order)
    assert operations.difference(digests, digests) is None
    for place, operation in enumerate(operations.order):
        other = bytearray(digests)
        other[DIGEST * place + 3] ^= 1
        assert operations.difference(digests, bytes(other)) == operation
    config = runner.config
    last = len(IDS) - 1
    widths = {name: kept.rows[Operation(name, layer), last].shape for name, layer in operations.order}
    assert widths["embed"] == widths["head_input"] == (config.width,)
    assert widths["attention_output_input"] == (config.num_heads * config.head_dim,)
    assert widths["down_input"] == (config.ffn_width,)
    assert widths["logits"] == (config.vocab_size,)


def test_recording_operations_changes_no_answer(smollm2_path: Path, tmp_path: Path) -> None:
    """Nor one bit of those beside: closed, and open with all hashed and written."""
    prompts = [[504, 3575, 282], [504, 3575, 282, 4649, 314], [28, 30]]
    params = [
        SamplingParams(temperature=0.8, seed=number, max_tokens=3, logprobs=2, n=1 + (number == 1))
        for number in range(3)
    ]
    answers = []
    for level in (None, OPERATIONS, TENSORS):
        record = None if level is None else Record(tmp_path / level, level)
        with LLM(smollm2_path, threads=2, max_model_len=64, record=record) as llm:
            answers.append([each.outputs for each in llm.generate(prompts, params, use_tqdm=False)])
    assert answers[0] == answers[1] == answers[2]


def test_operations_of_a_random_schedule_replay(smollm2_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    options: dict[str, Any] = {"max_num_batched_tokens": 24, "max_num_seqs": 4, "kv_tokens": 96}
    with LLM(smollm2_path, threads=1, max_model_len=96, record=Record(path, OPERATIONS), **options) as llm:
        for seed in (3, 4):
            run_schedule(llm, seed, 6)
    requests = whole_requests(path)
    assert all(each.end is None or each.end.content["cached"] == 0 for each in requests)
    assert max(len(line.content["steps"]) for each in requests for line in each.tokens) > 1
    verdict = verify(path, str(smollm2_path), threads=1)
    assert verdict.same_bits, verdict


@pytest.mark.parametrize("level", ["tokens", OPERATIONS])
def test_operations_of_a_prompt_are_never_taken_from_the_cache(smollm2_path: Path, tmp_path: Path, level: str) -> None:
    """The second time, all of it is in the cache but its last page."""
    path = tmp_path / "answers.jsonl"
    with LLM(smollm2_path, threads=1, max_model_len=64, record=Record(path, level)) as llm:
        for _ in range(2):
            llm.generate(SHARED, SamplingParams(temperature=0, max_tokens=1), use_tqdm=False)
    first, second = whole_requests(path)
    cached = [each.end.content["cached"] for each in (first, second) if each.end is not None]
    assert cached == ([0, 0] if level == OPERATIONS else [0, cached[1]])
    assert level == OPERATIONS or cached[1] >= 32
    assert first.tokens[0].content.get("operations") == second.tokens[0].content.get("operations")
    assert first.tokens[0].content["residual"] == second.tokens[0].content["residual"]


def test_what_a_line_of_a_token_says(smollm2_path: Path, tmp_path: Path) -> None:
    """By hand: the rolling hash over the rows of an open step, the noise of the whole row, the log-probability that a
    request is told that asks for it.
    """
    ids, key = [504, 3575, 282, 4649, 314], NoiseKey(5, 0, 5)
    params = SamplingParams(temperature=0.8, seed=5, max_tokens=2)
    path = tmp_path / "answers.jsonl"
    with LLM(smollm2_path, threads=1, max_model_len=64, record=Record(path)) as llm:
        (answer,) = llm.generate(ids, params, use_tqdm=False)[0].outputs
        (scored,) = llm.generate(ids, replace(params, logprobs=0), use_tqdm=False)[0].outputs
        assert answer.logprobs is None
        assert scored.logprobs is not None
        rows: list[bytes] = []

        def tap(name: str, layer: int, array: Any) -> None:
            if name == "take_rows":
                rows.append(array[0].tobytes())

        for tokens in (ids, ids + answer.token_ids[:1]):
            llm.runner.step_open(make_batch([Piece(0, tokens, [0])]), tap)
        noise = noise_row(key, llm.runner.vocab_size)
    first, second = (line.content for line in whole_requests(path)[0].tokens)
    rolled = hashlib.sha256(bytes(32) + rows[0]).digest()
    assert (first["residual"], second["residual"]) == (rolled.hex(), hashlib.sha256(rolled + rows[1]).hexdigest())
    assert [first["id"], second["id"]] == answer.token_ids
    assert first["noise"] == float(noise[first["id"]])
    assert first["text"] + second["text"] == answer.text
    for line, entries in zip((first, second), scored.logprobs, strict=True):
        assert line["logprob"] == entries[line["id"]].logprob
    assert first["steps"] == [[0, 0, 5, 1, 5]]
    assert second["steps"] == [[1, 5, 1, 1, 1]]
    assert second["finish"] == "length"


@pytest.mark.parametrize("level", ["tokens", OPERATIONS])
def test_a_request_may_be_tapped_and_recorded(smollm2_path: Path, tmp_path: Path, level: str) -> None:
    """Both see the same step; the record replays, and what was shown is what it is without a record."""
    taps, params = TapRequest("layers.3.attention", "logits"), SamplingParams(temperature=0.8, seed=5, max_tokens=2)
    path, shown = tmp_path / "answers.jsonl", []
    for record in (None, Record(path, level)):
        with LLM(smollm2_path, threads=1, max_model_len=64, record=record) as llm:
            tapped, beside = llm.generate([SHARED[:20], SHARED[:30]], params, use_tqdm=False, taps=taps)
            assert tapped.taps is not None
            shown.append(
                (tapped.outputs, beside.outputs, {k: each.values.tobytes() for k, each in tapped.taps.items()})
            )
    assert shown[0] == shown[1]
    verdict = verify(path, str(smollm2_path), threads=1)
    assert verdict.same_bits, verdict
    assert verdict.requests == 2
