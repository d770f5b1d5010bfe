"""Which instructions the vocabulary is lowered to on this machine, decided once when the package is imported.

In: the processor that Numba compiles for (the host, or the one that NUMBA_CPU_NAME and NUMBA_CPU_FEATURES name). Out:
``LOWERING``, one of the names in ``LOWERINGS``. Anything below a machine's floor is refused.
"""

import ctypes
import functools
import platform
from typing import Any, Final

import llvmlite.binding as llvm
import numba

from cutaway.errors import UnsupportedMachineError

_NUMBA: Any = numba.config
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
_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA = 158, 0x1023, 18  # Linux on x86-64

_FLOOR_NAMES = {
    "x86_64": "x86-64-v3 (AVX2, FMA, F16C: Intel since 2013, AMD since 2015)",
    "aarch64": "Armv8.2-A with dot products (Neoverse N1, Cortex-A76, Apple M1 and later)",
}


def machine_family(machine: str) -> str:
    """``platform.machine()`` under one name for each instruction set: systems differ in what they call it."""
    lower = machine.lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(lower, lower)


def processor_name() -> str:
    """The name of the processor that kernels are compiled for, as LLVM spells it."""
    return str(_NUMBA.CPU_NAME or llvm.get_host_cpu_name())


def processor_features() -> frozenset[str]:
    """The instruction sets that kernels may use. ``NUMBA_CPU_FEATURES`` ("+avx2,-avx512f") overrides the host's."""
    override = _NUMBA.CPU_FEATURES
    features = str(llvm.get_host_cpu_features().flatten() if override is None else override)
    if MACHINE == "aarch64":
        return features_in_use(llvm.get_default_triple(), processor_name(), features)
    if not _NUMBA.ENABLE_AVX:
        return frozenset()
    found = frozenset(part[1:] for part in features.split(",") if part.startswith("+"))
    amx = {name for name in found if name.startswith("amx-")}
    return found if not amx or _ask_for_matrices() else found - amx


@functools.cache
def _ask_for_matrices() -> bool:
    """Ask the system for room to save AMX's registers in; whether it is given. A process that doesn't ask is killed
    when it uses them.

    The permission is for all threads of the process and the children that it forks; another program must ask again. An
    older system doesn't know the question, a container's filter may refuse it, and so does Linux where a thread has a
    stack for signals that is too small for the registers. (Linux, Documentation/arch/x86/xstate.rst.)
    """
    if platform.system() != "Linux":
        return False
    return int(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA)) == 0


def features_in_use(triple: str, processor: str, features: str) -> frozenset[str]:
    """Which of the instruction sets of aarch64 LLVM uses when it compiles for a processor with these features.

    LLVM's list of the host's features is silent about those that follow from the processor's name. So this compiles two
    sums of products and reads what they became.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    body = """define i32 @sum_{name}(<16 x i8> %x, <16 x i8> %y) {{
        %a = {extend} <16 x i8> %x to <16 x i32>
        %b = sext <16 x i8> %y to <16 x i32>
        %product = mul <16 x i32> %a, %b
        %sum = call i32 @llvm.vector.reduce.add.v16i32(<16 x i32> %product)
        ret i32 %sum
    }}
    """
    source = "declare i32 @llvm.vector.reduce.add.v16i32(<16 x i32>)\n"
    source += body.format(name="signed", extend="sext") + body.format(name="mixed", extend="zext")
    target = llvm.Target.from_triple(triple).create_target_machine(cpu=processor, features=features, opt=2)
    instructions = set(target.emit_assembly(llvm.parse_assembly(source)).split())
    return frozenset(name for name, sign in (("dotprod", "sdot"), ("i8mm", "usdot")) if sign in instructions)


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


if _NUMBA.DISABLE_JIT:
    raise UnsupportedMachineError("NUMBA_DISABLE_JIT is set, and Cutaway's kernels exist only compiled. Unset it.")
MACHINE: Final = machine_family(platform.machine())
LOWERING: Final = choose_lowering(MACHINE, processor_features())
VECTORS: Final = "avx512" if LOWERING == "amx" else LOWERING
"""The lowering of words for vectors, which "amx" has from "avx512"."""
