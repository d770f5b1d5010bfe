"""Which instructions the vocabulary is lowered to on this machine, decided once when the package is imported.

In: the processor that Numba compiles for (the host, or the one that NUMBA_CPU_NAME and NUMBA_CPU_FEATURES name). Out:
``LOWERING``, "avx512" (AVX-512 with VNNI) or "avx2" (x86-64-v3). Anything below that floor is refused.
"""

import platform
from typing import Any, Final

import llvmlite.binding as llvm
import numba

from cutaway.errors import UnsupportedMachineError

_NUMBA: Any = numba.config
FLOOR = ("avx2", "fma", "f16c")
AVX512 = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni")


def processor_name() -> str:
    """The name of the processor that kernels are compiled for, as LLVM spells it."""
    return str(_NUMBA.CPU_NAME or llvm.get_host_cpu_name())


def processor_features() -> frozenset[str]:
    """The instruction sets that kernels may use. ``NUMBA_CPU_FEATURES`` ("+avx2,-avx512f") overrides the host's."""
    if not _NUMBA.ENABLE_AVX:
        return frozenset()
    override = _NUMBA.CPU_FEATURES
    if override is not None:
        return frozenset(part[1:] for part in str(override).split(",") if part.startswith("+"))
    return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)


def choose_lowering(machine: str, features: frozenset[str]) -> str:
    """The best lowering for a machine (``platform.machine()``) with these features.

    Raises UnsupportedMachineError below the floor: the same bits everywhere need fused multiply-add and half floats.
    """
    if machine.lower() not in ("x86_64", "amd64"):
        raise UnsupportedMachineError(
            f"this processor is {machine!r}; Cutaway's kernels exist for x86-64 with AVX2, FMA and F16C. "
            "Run it on such a machine."
        )
    missing = [name for name in FLOOR if name not in features]
    if missing:
        raise UnsupportedMachineError(
            f"this x86-64 processor lacks {', '.join(missing)}; the floor is x86-64-v3 (AVX2, FMA, F16C: "
            "Intel since 2013, AMD since 2015). Run it on such a machine."
        )
    return "avx512" if all(name in features for name in AVX512) else "avx2"


if _NUMBA.DISABLE_JIT:
    raise UnsupportedMachineError("NUMBA_DISABLE_JIT is set, and Cutaway's kernels exist only compiled. Unset it.")
LOWERING: Final = choose_lowering(platform.machine(), processor_features())
