"""Records made under random schedules are replayed, by every set of instructions that this processor has."""

import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from cutaway import LLM, Record, SamplingParams
from cutaway.audit.record.levels import TENSORS
from cutaway.audit.record.operations import Rows
from cutaway.audit.record.read_record import read_record
from cutaway.audit.record.recorded import RecordedRequest
from cutaway.audit.record.tensor_compare import TensorCompare
from cutaway.audit.record.verify import verify
from cutaway.engine.choice import Choice
from cutaway.engine.generation import Generation
from cutaway.engine.pooling import Pool
from cutaway.engine.stream import Stream
from cutaway.errors import ComputationError, CutawayError
from cutaway.ops.simd.lowering import LOWERING
from support.long import LONG
from support.machines import lesser_environments, subprocess_environment
from support.patience import SECONDS
from support.records import run_schedule, whole_requests

SCHEDULES = 500 if LONG else 5  # of each setting
CONTEXT = 96
LESSER = list(lesser_environments())
SETTINGS: dict[str, dict[str, Any]] = {
    "small steps": {"max_num_batched_tokens": 9, "max_num_seqs": 5},
    "preemption": {"kv_tokens": 96, "max_num_seqs": 6},
    "whole prompts": {"enable_chunked_prefill": False, "threads": 2},
    "static": {"batching": "static", "max_num_seqs": 3, "kv_tokens": 384},
}
CROWD = [list(range(500 + 20 * number, 516 + 20 * number)) for number in range(4)]
LONG_ANSWERS = SamplingParams(temperature=0.8, seed=2, max_tokens=24, ignore_eos=True)
"""Four that begin together, as there is room for their prompts, and can't all go on: 4 · 40 positions of 96."""


@pytest.fixture(scope="module")
def record(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file, to which an engine with each of the settings has added its session."""
    path = tmp_path_factory.mktemp("record") / "answers.jsonl"
    for place, (name, options) in enumerate(SETTINGS.items()):
        with LLM(smollm2_path, max_model_len=CONTEXT, record=Record(path), **{"threads": 1, **options}) as llm:
            for number in range(SCHEDULES):
                run_schedule(llm, 1000 * place + number, 16 if name == "preemption" else 4)
            if name == "preemption":  # which random schedules bring or don't
                llm.generate(CROWD, LONG_ANSWERS, use_tqdm=False)
                assert "preempted" in {each.action for each in llm.decisions()}
    return path


def test_schedules_are_what_they_are_meant_to_be(record: Path) -> None:
    """Prompts in several steps, from the cache, beside others; requests that were left; answers of all kinds."""
    content = read_record(record)
    assert content.changed is None
    assert content.torn == []
    assert len(content.sessions) == len(SETTINGS)
    assert all(each.has_receipt for session in content.sessions for each in session.requests)
    requests = whole_requests(record)
    assert len(requests) >= 3 * SCHEDULES * len(SETTINGS)
    assert len(list(content.receipts)) == len(requests)
    reasons = Counter(each.end.content["reason"] for each in requests if each.end is not None)
    assert reasons["end"] > reasons["abort"] > 0
    steps = [line.content["steps"] for each in requests for line in each.tokens]
    assert max(map(len, steps)) > 2  # a prompt in chunks
    assert max(sequences for own in steps for _, _, _, sequences, _ in own) > 2
    assert any(each.end.content["cached"] for each in requests if each.end is not None)
    assert any(each.end.content["embedding"] for each in requests if each.end is not None)
    recorded = [each.begin.content["params"] for each in requests]
    for name in ("n", "logprobs", "prompt_logprobs", "logit_bias", "allowed_token_ids", "structured_outputs", "stop"):
        assert len({json.dumps(each[name]) for each in recorded}) > 1, name


@pytest.mark.parametrize("lowering", LESSER if LESSER and not LONG else [LOWERING, *LESSER])
def test_records_replay_with_every_lowering(record: Path, smollm2_path: Path, lowering: str) -> None:
    requests = [each for session in read_record(record).sessions for each in session.requests]
    tokens = sum(each.tokens for each in requests)
    environment = subprocess_environment() if lowering == LOWERING else lesser_environments()[lowering]
    command = [sys.executable, "-m", "cutaway", "verify", str(record), str(smollm2_path)]
    found = subprocess.run(
        [*command, "--threads", "1", "--json"],
        env={**environment, "CUTAWAY_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=100 * SECONDS if LONG else SECONDS,
    )
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]
    verdict = json.loads(found.stdout)
    assert verdict == {
        "same_bits": True,
        "difference": None,
        "requests": len(requests),
        "tokens": tokens,
        "notes": [],
        "lowering": lowering,
    }


@pytest.mark.parametrize("kv_dtype", ["int8"])
def test_the_type_of_keys_and_values_is_the_records(smollm2_path: Path, tmp_path: Path, kv_dtype: str) -> None:
    path = tmp_path / "answers.jsonl"
    with LLM(smollm2_path, threads=1, max_model_len=CONTEXT, kv_dtype=kv_dtype, record=Record(path)) as llm:
        run_schedule(llm, 7)
    assert read_record(path).sessions[0].header.content["kv_dtype"] == kv_dtype
    assert verify(path, str(smollm2_path), threads=2).same_bits


def test_steps_that_no_token_came_of_are_in_the_end(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an embedding, and of a request that fails before its first token, whose scores nobody is told."""
    path, prompt = tmp_path / "answers.jsonl", list(range(500, 520))
    options: dict[str, Any] = {"threads": 1, "max_model_len": CONTEXT, "max_num_batched_tokens": 8}
    with LLM(smollm2_path, **options, enable_prefix_caching=False, record=Record(path)) as llm:
        llm.embed([prompt], use_tqdm=False)
        llm.generate([prompt], SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0), use_tqdm=False)
        monkeypatch.setattr(Choice, "row", Mock(side_effect=CutawayError("no row")))
        with pytest.raises(CutawayError, match="no row"):
            llm.generate([prompt], SamplingParams(max_tokens=1, prompt_logprobs=0), use_tqdm=False)
    monkeypatch.undo()
    parts = [[0, 8, 1, 8], [8, 8, 1, 8], [16, 4, 1, 4]]
    embedded, whole, failed = (
        ([line.content["kind"] for line in each.lines], each.end.content["reason"], each.end.content["steps"])
        for each in whole_requests(path)
        if each.end is not None
    )
    assert embedded == ([], "end", [[number, *part] for number, part in enumerate(parts)])
    assert whole == (["token", "scores"], "end", [])
    assert failed == ([], "error", [[number, *part] for number, part in enumerate(parts, 6)])
    assert verify(path, str(smollm2_path), threads=1).same_bits


def test_no_step_of_a_request_that_was_left_is_taken_for_the_next_one_s(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replay is left where the record ends, in the middle of a step: of one that waits for the next request."""
    path, prompt = tmp_path / "answers.jsonl", [504, 3575, 282]
    with LLM(smollm2_path, threads=1, max_model_len=CONTEXT, record=Record(path, TENSORS)) as llm:
        stream = llm.stream(prompt, SamplingParams(seed=1, ignore_eos=True, max_tokens=80))
        next(stream)
        stream.close()
        llm.generate([[28, 30, 253, 260, 282, 284, 288, 314] * 11], SamplingParams(max_tokens=1), use_tqdm=False)
    left, _ = whole_requests(path)
    assert left.end is not None
    assert left.end.content["reason"] == "abort"
    begin, take, close = TensorCompare.begin, TensorCompare.take, Stream.close
    begun: list[str] = []
    inside, next_one = threading.Event(), threading.Event()

    def noted(compare: TensorCompare, request: RecordedRequest) -> None:
        begun.append(request.id)
        begin(compare, request)
        if len(begun) == 2:
            next_one.set()

    def slow(compare: TensorCompare, request_id: str, choices: tuple[int, ...], rows: Rows) -> None:
        if not inside.is_set() and rows.position >= len(prompt) - 1 + len(left.tokens):  # beyond what was recorded
            inside.set()
            next_one.wait(1)
        take(compare, request_id, choices, rows)

    def leave(stream: Stream) -> None:
        assert inside.wait(SECONDS)
        close(stream)

    monkeypatch.setattr(TensorCompare, "begin", noted)
    monkeypatch.setattr(TensorCompare, "take", slow)
    monkeypatch.setattr(Stream, "close", leave)
    verdict = verify(path, str(smollm2_path), threads=1)
    assert (verdict.difference, verdict.requests, verdict.notes) == (None, 2, [])


FAULT = 3  # the position at which the numbers of a prompt are none


def scores_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    score = Generation.score

    def fail(generation: Generation, start: int, logits: Any, scratch: Any) -> Any:
        if len(generation.asked.prompt_ids) == 5 and start <= FAULT < start + len(logits):
            raise ComputationError("a fault of the test")
        return score(generation, start, logits, scratch)

    monkeypatch.setattr(Generation, "score", fail)


def states_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    add = Pool.add

    def fail(pool: Pool, start: int, hidden: Any) -> None:
        spoilt = np.array(hidden)
        if start <= FAULT < start + len(hidden):
            spoilt[FAULT - start] = np.nan
        add(pool, start, spoilt)

    monkeypatch.setattr(Pool, "add", fail)


@pytest.mark.parametrize("fault", [scores_fail, states_fail])
@pytest.mark.parametrize("chunk", [4, 3, 64])
def test_a_request_that_fails_ends_alone_and_its_record_is_right(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Any, chunk: int
) -> None:
    """However its prompt was cut: by a chunk of 3, its last scores fail and others were there before."""
    path, prompt = tmp_path / "answers.jsonl", [504, 3575, 282, 4649, 314]
    scored = SamplingParams(prompt_logprobs=1, temperature=0, max_tokens=2)
    fault(monkeypatch)
    options: dict[str, Any] = {"max_model_len": CONTEXT, "max_num_batched_tokens": chunk, "max_num_seqs": 1}
    with LLM(smollm2_path, threads=1, record=Record(path), **options) as llm:
        if fault is scores_fail:
            with pytest.raises(ComputationError, match="of the test"):
                llm.generate([prompt], scored, use_tqdm=False)
        else:
            with pytest.raises(CutawayError, match="no direction"):
                llm.embed([prompt], pooling="mean", use_tqdm=False)
        (after,) = llm.generate([prompt[:2]], scored, use_tqdm=False)
    assert "receipt" in (after.record or {})
    failed, whole = whole_requests(path)
    assert failed.end is not None
    assert (failed.end.content["reason"], failed.end.content["embedding"], failed.lines) == ("error", None, [])
    assert [line.content["kind"] for line in whole.lines] == ["token", "scores", "token"]
    verdict = verify(path, str(smollm2_path), threads=1)
    assert (verdict.difference, verdict.requests, verdict.notes) == (None, 2, [])
