"""The benchmark of the engine's loop runs, and its parts are those that the engine has."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import SECONDS

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "loop.py"


@pytest.mark.parametrize(("batch", "threads"), [("1", "1"), ("3", "2")])
def test_every_part_has_its_row(smollm2_path: Path, batch: str, threads: str) -> None:
    options = ["--tokens", "8", "--rounds", "1", "--batch", batch, "--threads", threads]
    command = [sys.executable, str(SCRIPT), str(smollm2_path), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    medians = {
        name.strip(): float(value) for name, value in re.findall(r"^(\D+?)\s+([\d.-]+) ", done.stdout, re.MULTILINE)
    }
    parts = {"schedule", "make the batch", "check the batch", "hand to the team", "sample", "give tokens", "complete"}
    assert parts | {"forward", "sampler", "text and events", "count", "step of the core"} <= set(medians)
    assert all(medians[name] > 0 for name in ("forward", "sampler", "sample", "give tokens"))
