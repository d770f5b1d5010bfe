"""The plan against what a process takes, as the system counts it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cutaway import LLM, CutawayError
from cutaway.engine.plan import measure_runtime, plan_memory, resident_bytes
from cutaway.engine.settings import engine_settings
from cutaway.errors import CapacityError, InvalidRequestError
from cutaway.formats.gguf import open_gguf
from cutaway.memory.kv_setting import kv_setting
from cutaway.model.config import read_config
from support.long import LONG
from support.memory_limit import KilledError, run_within

FULL_USE = """
import json, sys
from cutaway import LLM, SamplingParams
from cutaway.engine.plan import resident_bytes
options = json.loads(sys.argv[2])
with LLM(sys.argv[1], **options) as llm:
    prompts = [[5 + number] * (options["max_model_len"] - 4) for number in range(options["max_num_seqs"])]
    params = SamplingParams(max_tokens=4, temperature=0.8, seed=1, ignore_eos=True, logprobs=3)
    assert all(output.finished for output in llm.generate(prompts, params))
    print(llm.settings.kv_tokens, resident_bytes("VmHWM"))
"""


def used(path: Path, **options: object) -> tuple[int, int]:
    """Tokens of the pool, and the peak of a process that has used all of it."""
    command = [sys.executable, "-c", FULL_USE, str(path), json.dumps(options)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    tokens, peak = map(int, run.stdout.split())
    return tokens, peak


def planned(path: Path, context: int, requests: int, threads: int) -> int:
    """Bytes of the plan."""
    settings = engine_settings(context, kv_setting("paged"), max_num_seqs=requests, kv_tokens=context * requests)
    with open_gguf(path) as source:
        runtime = measure_runtime(path, "f16", threads)
        return plan_memory(source, read_config(source), settings, threads, "f16", runtime).total


@pytest.mark.parametrize(("context", "requests", "threads"), [(128, 2, 1), (256, 12, 2)])
def test_the_peak_is_what_was_planned(smollm2_path: Path, context: int, requests: int, threads: int) -> None:
    """Within 5 % or 20 MB, with all kernels in the cache."""
    used(smollm2_path, max_model_len=32, max_num_seqs=1, threads=1)  # compiles what is not there
    total = planned(smollm2_path, context, requests, threads)
    _, peak = used(
        smollm2_path, max_model_len=context, max_num_seqs=requests, kv_tokens=context * requests, threads=threads
    )
    assert abs(peak - total) <= max(20e6, 0.05 * total), (peak, total)


def test_a_memory_limit_is_kept(smollm2_path: Path) -> None:
    """The pool is as large as the limit leaves room for, so the peak is just below it."""
    limit = planned(smollm2_path, 256, 4, 1)
    tokens, peak = used(smollm2_path, max_model_len=128, max_num_seqs=32, memory=limit, threads=1)
    assert 128 * 2 < tokens < 128 * 32  # fewer than all sequences could use
    assert limit - 30e6 < peak < limit + 20e6


CROWD = """
import asyncio, json, sys
from cutaway import LLM, AsyncEngine, SamplingParams
from cutaway.engine.plan import resident_bytes
requests, prompt, answer, limit = map(int, sys.argv[2:])
params = SamplingParams(max_tokens=answer, temperature=0.8, seed=1, ignore_eos=True)
async def main():
    llm = LLM(sys.argv[1], max_model_len=prompt + answer, memory=limit, max_waiting=requests // 2)
    async with AsyncEngine(llm) as engine:
        async def ask(number):
            return await (await engine.submit([5 + number] * prompt, params)).run()
        found = await asyncio.gather(*map(ask, range(requests)), return_exceptions=True)
        name = lambda each: type(each).__name__ if isinstance(each, Exception) else each.outputs[0].finish_reason
        kinds = [name(each) for each in found]
        print(json.dumps([kinds, llm.settings.kv_tokens, resident_bytes("VmHWM")]))
asyncio.run(main())
"""


def test_a_crowd_under_a_memory_limit(smollm2_path: Path) -> None:
    """Many more requests than have room, in a process that is killed where it takes more than a little above its limit:
    it isn't; each request ends, or is refused because too many wait.

    100 requests of 2,000 tokens with CUTAWAY_LONG_TESTS=1.
    """
    requests, prompt, answer = (100, 1900, 100) if LONG else (24, 100, 40)
    limit = planned(smollm2_path, 8192 if LONG else 1024, 2 if LONG else 1, 1)
    arguments = [str(smollm2_path), *map(str, (requests, prompt, answer, limit))]
    margin = int(max(20e6, 0.05 * limit))
    kinds, tokens, peak = json.loads(run_within([sys.executable, "-c", CROWD, *arguments], limit + margin, 3600))
    assert set(kinds) <= {"length", "QueueFullError"}  # how many are refused depends on who is faster
    assert kinds.count("length") >= requests // 2
    assert tokens < requests * (prompt + answer) / 2
    assert peak <= limit + margin


def test_a_process_over_its_limit_is_killed() -> None:
    with pytest.raises(KilledError, match="and its limit is 100,000,000"):
        run_within([sys.executable, "-c", "import time; taken = b'1' * 10**8 * 2; time.sleep(600)"], 10**8, 600)


def test_a_limit_that_is_too_small(smollm2_path: Path) -> None:
    with pytest.raises(
        CapacityError, match=r"the memory limit is 1,000,000 bytes; runtime .* one context of 64 positions"
    ):
        LLM(smollm2_path, max_model_len=64, threads=1, memory=10**6)


def test_limits_that_are_none(smollm2_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="memory is 'much'; it must be 1 byte at least"):
        LLM(smollm2_path, memory="much")
    with pytest.raises(InvalidRequestError, match="there are memory and kv_tokens"):
        LLM(smollm2_path, memory="2GiB", kv_tokens=8192)


def test_what_the_system_tells() -> None:
    assert 10e6 < resident_bytes() <= resident_bytes("VmHWM")
    with pytest.raises(CutawayError, match="has no VmNothing"):
        resident_bytes("VmNothing")


def test_a_runtime_that_can_not_be_measured(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"nothing")
    with pytest.raises(CutawayError, match="the runtime's memory could not be measured"):
        measure_runtime(tmp_path / "model.gguf", "f16", 1)


def test_kernels_that_can_not_be_kept_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("cutaway.engine.plan.MEASURE", "print(3, 123456789)")
    with pytest.warns(UserWarning, match="3 kernels were compiled again.* 123,456,789 bytes have the compiler in them"):
        assert measure_runtime(tmp_path, "f16", 1) == 123456789


def test_a_measurement_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("cutaway.engine.plan.MEASURE", "import time; time.sleep(600)")
    monkeypatch.setattr("cutaway.engine.plan.MEASURE_SECONDS", 0.5)
    with pytest.raises(CutawayError, match=r"could not be measured within 0\.5 s"):
        measure_runtime(tmp_path, "f16", 1)
