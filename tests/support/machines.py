"""Environments for subprocesses that behave as another processor would.

In: nothing but this machine. Out: environment variables for a process whose kernels use AVX2, or AVX-512, at most.
"""

import os
import sys
from pathlib import Path

import llvmlite.binding as llvm

from cutaway.ops.simd.host import MACHINE
from cutaway.ops.simd.lowering import LOWERING, LOWERINGS
from cutaway.ops.simd.registers import DEFAULT_FLOAT_ENVIRONMENT

X86_64_V3 = """
    64bit cmov cx8 cx16 fxsr mmx sse sse2 sse3 ssse3 sse4.1 sse4.2 popcnt sahf avx avx2 fma f16c bmi bmi2 lzcnt movbe
    xsave invpcid fsgsbase crc32
"""
NUMPY_BEYOND = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
ROOT = Path(__file__).parents[2]

FLUSH_TO_ZERO = DEFAULT_FLOAT_ENVIRONMENT | {"x86_64": 0x8040, "aarch64": 1 << 24}[MACHINE]
"""A floating-point environment that drops denormals, read and written (MXCSR's FTZ and DAZ, FPCR's FZ)."""
CONTROL_BITS = {"x86_64": 0xFFC0, "aarch64": 0xFFFFFFFF}[MACHINE]
"""Those of the environment's register that arithmetic doesn't change: MXCSR holds the exceptions' flags, too."""


def has_avx512() -> bool:
    """Whether this processor has the instructions of the wide lowering."""
    features = llvm.get_host_cpu_features()
    return all(features.get(name) for name in ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"))


def compiles_for_aarch64() -> bool:
    """Whether this build of LLVM can write code for aarch64: those on the package index and conda's can."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    except RuntimeError:
        return False
    return True


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


def avx512_environment() -> dict[str, str]:
    """This process's environment, where the processor has no matrix registers."""
    features = ",".join(
        ("+" if there and not name.startswith("amx-") else "-") + name
        for name, there in llvm.get_host_cpu_features().items()
        if name != "64bit-mode"
    )
    return {**subprocess_environment(), "NUMBA_CPU_FEATURES": features}


def lesser_environments() -> dict[str, dict[str, str]]:
    """Lowering → environment of a process that chooses it, for all that this processor has below this process's."""
    environments = {"avx512": avx512_environment, "avx2": avx2_environment}
    names = list(LOWERINGS[MACHINE])
    below = names[names.index(LOWERING) + 1 :] if MACHINE == "x86_64" else []
    return {name: environments[name]() for name in below}


def subprocess_environment() -> dict[str, str]:
    """This process's environment; the package and the helpers are found where this process found them."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *filter(None, sys.path)])}


def _numpy_groups() -> list[str]:
    """The dispatch groups of NumPy that this processor has; naming others would be an error."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
