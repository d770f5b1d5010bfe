"""Other processes: a second one compiles nothing, and a forked one can't use what it can't have."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cutaway import LLM
from cutaway.engine.compile import FORMATS_AHEAD
from cutaway.formats.gguf import open_gguf
from support.patience import SECONDS

GENERATE_TWICE = """
import json, sys
from cutaway.ops.kernel_cache import compilations
from cutaway import LLM, SamplingParams
compiled = []
sampled = {"temperature": 0.7, "top_k": 9, "top_p": 0.9, "min_p": 0.1, "logprobs": 3}
with compilations(compiled.append):
    for kv_dtype in ("f16", "f32", "int8"):
        with LLM(sys.argv[1], max_model_len=64, threads=1, kv_dtype=kv_dtype) as llm:
            for params in ({"temperature": 0}, sampled):
                llm.generate("One, two, three", SamplingParams(max_tokens=2, **params))
print(json.dumps(compiled))
"""

FORK = """
import os, sys
from cutaway import LLM, CutawayError, SamplingParams
params = SamplingParams(temperature=0, max_tokens=5)
llm = LLM(sys.argv[1], max_model_len=64, threads=2)
before = llm.generate("One, two, three", params)[0].outputs[0].token_ids
left = llm.stream("One, two, three", params)
next(left)
if os.fork() == 0:
    for use in (lambda: llm.generate("x"), lambda: llm.stream("x"), lambda: next(left)):
        try:
            use()
        except CutawayError as error:
            print(error, flush=True)
    llm.close()
    sys.exit(3)
_, status = os.wait()
assert os.waitstatus_to_exitcode(status) == 3
assert left.run().outputs[0].token_ids == before
assert llm.generate("One, two, three", params)[0].outputs[0].token_ids == before
llm.close()
print("the parent goes on", flush=True)
"""


def run(program: str, model: Path) -> str:
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", program, str(model)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS).stdout


def test_a_second_process_compiles_nothing(smollm2_path: Path) -> None:
    run(GENERATE_TWICE, smollm2_path)
    assert json.loads(run(GENERATE_TWICE, smollm2_path)) == []


def test_the_formats_of_what_is_fetched_are_compiled_ahead(smollm2_path: Path) -> None:
    with open_gguf(smollm2_path) as gguf:
        formats = {tensor.block_type.name for tensor in gguf.tensors.values() if len(tensor.shape) == 2}
    assert formats == set(FORMATS_AHEAD)


def test_the_listener_hears_what_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the silence of the test before means something."""
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path))  # where nothing is compiled yet
    program = """
import sys
from cutaway.ops.kernel_cache import compilations, jit
heard = []
with compilations(heard.append):
    @jit
    def twice(x):
        return 2 * x
    twice(1)
print(heard)
"""
    assert run(program, Path()) == "['twice']\n"


def test_a_fork(smollm2_path: Path, llm: LLM) -> None:
    *refusals, last = run(FORK, smollm2_path).splitlines()
    assert last == "the parent goes on"
    assert len(refusals) == 3
    for line in refusals:
        assert "a fork takes no threads along. Load the model in the new process" in line
