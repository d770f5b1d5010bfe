"""The processor that kernels are compiled for: its name and its instruction sets.

In: what Linux says of an x86-64 processor; elsewhere, what LLVM says of the host; or the variables NUMBA_CPU_NAME and
NUMBA_CPU_FEATURES, by which Numba can be told to compile for another one. Out: names, as LLVM spells them.
"""

import ctypes
import functools
import os
import platform
from pathlib import Path
from typing import Final

_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA = 158, 0x1023, 18  # Linux on x86-64
_LLVM_NAMES: Final = {
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "amx_tile": "amx-tile",
    "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
}
"""Of instruction sets that Linux spells otherwise."""


def machine_family(machine: str) -> str:
    """``platform.machine()`` under one name for each instruction set: systems differ in what they call it."""
    lower = machine.lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(lower, lower)


MACHINE: Final = machine_family(platform.machine())


def processor_name() -> str:
    """The name of the processor that kernels are compiled for."""
    return os.environ.get("NUMBA_CPU_NAME") or _linux_x86().get("model name") or _llvm_host()[0]


def processor_features() -> frozenset[str]:
    """The instruction sets that kernels may use. ``NUMBA_CPU_FEATURES`` ("+avx2,-avx512f") overrides the host's."""
    override = os.environ.get("NUMBA_CPU_FEATURES")
    if override is None and os.environ.get("NUMBA_CPU_NAME", "").lower() == "generic":
        override = ""  # as Numba takes it
    if MACHINE == "aarch64":
        name, features = _llvm_host()
        name = os.environ.get("NUMBA_CPU_NAME") or name
        return features_in_use(_llvm_triple(), name, features if override is None else override)
    if os.environ.get("NUMBA_ENABLE_AVX") == "0":
        return frozenset()
    if override is None and (flags := _linux_x86().get("flags")):
        found = frozenset(_LLVM_NAMES.get(name, name) for name in flags.split())
    else:
        found = _switched_on(_llvm_host()[1] if override is None else override)
    amx = {name for name in found if name.startswith("amx-")}
    return found if not amx or _ask_for_matrices() else found - amx


def _switched_on(features: str) -> frozenset[str]:
    """Of LLVM's list of features, "+avx2,-avx512f", those that are there."""
    return frozenset(part[1:] for part in features.split(",") if part.startswith("+"))


@functools.cache
def _linux_x86() -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo, on Linux on x86-64; nothing elsewhere or without /proc. (proc(5).)

    Linux leaves out instruction sets whose registers it doesn't save. LLVM finds the same by asking the processor, but
    to load it takes longer than all else that a start does.
    """
    if platform.system() != "Linux" or MACHINE != "x86_64":
        return {}
    try:
        first, _, _ = Path("/proc/cpuinfo").read_text().partition("\n\n")
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}


def _llvm_host() -> tuple[str, str]:
    """Name and features of the host, from LLVM."""
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_name()), str(llvm.get_host_cpu_features().flatten())


def _llvm_triple() -> str:
    import llvmlite.binding as llvm

    return str(llvm.get_default_triple())


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
    import llvmlite.binding as llvm

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
