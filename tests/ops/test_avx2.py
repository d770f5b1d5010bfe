"""The tests of the vocabulary and of the operations once more, in a process that has AVX2 at most."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.machines import avx2_environment, has_avx512

HERE = Path(__file__).parent


@pytest.mark.skipif(
    not has_avx512(), reason="this processor chooses AVX2 already: the tests beside this one are the test"
)
def test_operations_in_the_avx2_lowering() -> None:
    environment = avx2_environment()
    chosen = (
        "from cutaway.ops.simd import LOWERING; from cutaway.ops.cpu.tiles import ROW_BLOCK; print(LOWERING, ROW_BLOCK)"
    )
    answer = subprocess.run([sys.executable, "-c", chosen], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["avx2", "2"]
    tests = [HERE / "test_simd.py", HERE / "cpu"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *map(str, tests)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
