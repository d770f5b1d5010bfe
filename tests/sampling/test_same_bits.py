"""The same ids and the same bits of log-probabilities in every process and with either set of instructions."""

import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import sample_in_child

ABOVE_THE_FLOOR = ("avx512", "avxvnni", "avxifma", "avxne", "avx10", "amx", "gfni", "vaes", "vpclmul")
HOST = llvm.get_host_cpu_features()


def in_child(environment: dict[str, str]) -> tuple[str, str]:
    """(lowering, digest) of a process with these variables."""
    done = subprocess.run(
        [sys.executable, str(Path(sample_in_child.__file__))],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    lowering, digest = done.stdout.split()
    return lowering, digest


def test_two_processes_and_two_lowerings_agree() -> None:
    # The name of a processor alone leaves Numba the host's features, so both are set.
    features = ",".join(
        ("-" if name.startswith(ABOVE_THE_FLOOR) else "+") + name for name, present in HOST.items() if present
    )
    lowering, digest = in_child({"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": features})
    assert lowering == "avx2"
    _, again = in_child({})
    assert again == digest
