"""Scripts written for vLLM, as its quick start writes them, run after changing the import, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import SECONDS

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_for_vllm_runs(script: Path, smollm2_path: Path, tmp_path: Path) -> None:
    source = script.read_text("utf-8")
    assert source.count("from vllm import") == 1
    assert len(source.splitlines()) >= 12
    changed = tmp_path / script.name
    changed.write_text(source.replace("from vllm import", "from cutaway import"), "utf-8")
    run = [
        subprocess.run([sys.executable, changed], capture_output=True, text=True, timeout=SECONDS, env=os.environ)
        for _ in range(2)
    ]
    assert run[0].returncode == 0, run[0].stderr
    assert run[0].stdout.count("\n") >= 3
    assert run[0].stdout == run[1].stdout  # it gave a seed


def test_the_scripts_are_there() -> None:
    assert [path.stem for path in SCRIPTS] == ["chat_with_vllm", "generate_with_vllm"]
