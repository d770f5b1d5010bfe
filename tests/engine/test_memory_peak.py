"""What a plain run loads and takes: nothing that it has no use for."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ASK = """
import json, re, sys
from pathlib import Path
from cutaway import LLM, SamplingParams
with LLM(sys.argv[1], threads=2, max_model_len=577, max_num_seqs=1) as llm:
    request = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
    tokens = len(llm.generate(list(range(100, 612)), request)[0].outputs[0].token_ids)
    kv_bytes = 576 * llm.runner.kv.position_bytes
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(json.dumps({"tokens": tokens, "modules": sorted(sys.modules), "kv": kv_bytes, "peak": 1024 * int(peak[1])}))
"""

NOT_NEEDED = {
    "fastapi": "there is no server",
    "http.client": "nothing is fetched",
    "huggingface_hub": "nothing is fetched",
    "jinja2": "there is no chat",
    "llvmlite": "nothing is compiled",
    "numba": "nothing is compiled",
    "numpy.ma": "np.unique loads it; sorting does as well",
    "rich": "nothing is shown",
    "ssl": "nothing is fetched",
    "typer": "it isn't the command line",
}

MOST_BEYOND = 90_000_000
"""Bytes beside the model's file and the keys and values: 70 million were measured (docs/performance.md)."""


def ask(model: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", ASK, str(model)]
    answer: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=300).stdout)
    assert answer["tokens"] == 64
    return answer


def test_a_plain_run_takes_little_beside_the_model(smollm2_path: Path) -> None:
    ask(smollm2_path)  # so that the kernels are there
    answer = ask(smollm2_path)
    assert [name for name in NOT_NEEDED if name in answer["modules"]] == []
    assert answer["peak"] - smollm2_path.stat().st_size - answer["kv"] < MOST_BEYOND
