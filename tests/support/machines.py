"""Environments for subprocesses that behave as another processor would.

In: nothing but this machine. Out: environment variables for a process whose kernels use AVX2 at most.
"""

import os
import sys
from pathlib import Path

import llvmlite.binding as llvm

X86_64_V3 = """
    64bit cmov cx8 cx16 fxsr mmx sse sse2 sse3 ssse3 sse4.1 sse4.2 popcnt sahf avx avx2 fma f16c bmi bmi2 lzcnt movbe
    xsave invpcid fsgsbase crc32
"""
NUMPY_BEYOND = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
ROOT = Path(__file__).parents[2]


def has_avx512() -> bool:
    """Whether this processor has the instructions of the wide lowering."""
    features = llvm.get_host_cpu_features()
    return all(features.get(name) for name in ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"))


def avx2_environment() -> dict[str, str]:
    """This process's environment, with a processor of 2013 in the place of this one.

    NUMBA_CPU_NAME alone would keep the host's features; NumPy has dispatch groups of its own.
    """
    features = ",".join(
        ("+" if name in X86_64_V3.split() else "-") + name
        for name in llvm.get_host_cpu_features()
        if name != "64bit-mode"
    )
    return {
        **subprocess_environment(),
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": features,
        "NPY_DISABLE_CPU_FEATURES": " ".join(group for group in NUMPY_BEYOND.split() if group in _numpy_groups()),
    }


def subprocess_environment() -> dict[str, str]:
    """This process's environment; the package and the helpers are found where this process found them."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *filter(None, sys.path)])}


def _numpy_groups() -> list[str]:
    """The dispatch groups of NumPy that this processor has; naming others would be an error."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
