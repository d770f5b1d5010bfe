"""Which instructions the vocabulary is lowered to on this machine, decided once when the package is imported.

In: the processor that kernels are compiled for (``host``). Out: ``LOWERING``, one of the names in ``LOWERINGS``.
Anything below a machine's floor is refused.
"""

import os
from typing import Final

from cutaway.errors import UnsupportedMachineError
from cutaway.ops.simd.host import MACHINE, machine_family, processor_features

_AVX512 = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni")
LOWERINGS: Final = {
    "x86_64": {
        "amx": (*_AVX512, "amx-tile", "amx-int8"),
        "avx512": _AVX512,
        "avx2": ("avx2", "fma", "f16c"),
    },
    "aarch64": {"neon_i8mm": ("dotprod", "i8mm"), "neon": ("dotprod",)},
}
"""For each machine, the lowerings and the instruction sets that they need: the best first, the floor last. "amx" is
"avx512" with products of whole matrix registers besides.
"""

_FLOOR_NAMES = {
    "x86_64": "x86-64-v3 (AVX2, FMA, F16C: Intel since 2013, AMD since 2015)",
    "aarch64": "Armv8.2-A with dot products (Neoverse N1, Cortex-A76, Apple M1 and later)",
}


def choose_lowering(machine: str, features: frozenset[str]) -> str:
    """The best lowering for a machine (``platform.machine()``) with these features.

    Raises UnsupportedMachineError below the floor: the same bits everywhere need fused multiply-add and half floats
    (all of aarch64 has both), and the speed needs dot products.
    """
    family = machine_family(machine)
    if family not in LOWERINGS:
        raise UnsupportedMachineError(
            f"this processor is {machine!r}; Cutaway's kernels exist for x86-64 with AVX2, FMA and F16C, and for "
            "aarch64 with dot products. Run it on such a machine."
        )
    for lowering, needed in LOWERINGS[family].items():
        if features.issuperset(needed):
            return lowering
    missing = [name for name in needed if name not in features]
    unknown = " If it has them and LLVM doesn't know it, name one like it: NUMBA_CPU_NAME=neoverse-n1."
    raise UnsupportedMachineError(
        f"this {family.replace('_', '-')} processor lacks {', '.join(missing)}; the floor is {_FLOOR_NAMES[family]}. "
        f"Run it on such a machine.{unknown if family == 'aarch64' else ''}"
    )


def lacking(machine: str, features: frozenset[str]) -> tuple[str, tuple[str, ...]]:
    """The machine's best lowering, and the features it wants that are not there."""
    best, needed = next(iter(LOWERINGS[machine_family(machine)].items()))
    return best, tuple(name for name in needed if name not in features)


if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
    raise UnsupportedMachineError("NUMBA_DISABLE_JIT is set, and Cutaway's kernels exist only compiled. Unset it.")
LOWERING: Final = choose_lowering(MACHINE, processor_features())
VECTORS: Final = "avx512" if LOWERING == "amx" else LOWERING
"""The lowering of words for vectors, which "amx" has from "avx512"."""
