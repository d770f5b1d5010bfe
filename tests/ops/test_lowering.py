"""Which lowering a machine gets, and the refusal of those below the floor."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutaway.errors import UnsupportedMachineError
from cutaway.ops.simd import host
from cutaway.ops.simd.host import MACHINE, features_in_use, processor_features
from cutaway.ops.simd.lowering import LOWERING, LOWERINGS, choose_lowering, lacking
from support.machines import compiles_for_aarch64, subprocess_environment

HERE = Path(__file__).parent

CASES = [(machine, name) for machine, lowerings in LOWERINGS.items() for name in lowerings]
NAMES = {"x86_64": ("x86_64", "AMD64"), "aarch64": ("aarch64", "arm64")}
AMX = LOWERINGS["x86_64"]["amx"]
FLOORS = {"x86_64": ("avx2", "fma", "f16c"), "aarch64": ("dotprod",)}

on_x86 = pytest.mark.skipif(MACHINE != "x86_64", reason="what a processor has is found in another way on this machine")


@pytest.mark.parametrize(("machine", "best"), CASES)
def test_the_best_lowering_that_the_processor_has(machine: str, best: str) -> None:
    features = frozenset(LOWERINGS[machine][best])
    for name in NAMES[machine]:
        assert choose_lowering(name, features | {"something"}) == best


@pytest.mark.parametrize(
    ("machine", "better", "next_best"),
    [("x86_64", "amx", "avx512"), ("x86_64", "avx512", "avx2"), ("aarch64", "neon_i8mm", "neon")],
)
def test_a_lowering_needs_all_of_its_parts(machine: str, better: str, next_best: str) -> None:
    """What the next best has, too, is a matter of that one."""
    best, wanted = next(iter(LOWERINGS[machine].items()))
    all_of_them, enough = set(LOWERINGS[machine][better]), set(LOWERINGS[machine][next_best])
    assert enough < all_of_them
    for missing in all_of_them - enough:
        features = frozenset(all_of_them - {missing})
        assert choose_lowering(machine, features) == next_best
        assert lacking(machine, features) == (best, tuple(name for name in wanted if name not in features))
    assert lacking(machine, frozenset(wanted)) == (best, ())


@pytest.mark.parametrize("missing", sorted(set(LOWERINGS["x86_64"]["avx512"]) - set(FLOORS["x86_64"])))
def test_matrix_registers_without_all_of_avx512_are_not_used(missing: str) -> None:
    assert choose_lowering("x86_64", frozenset(LOWERINGS["x86_64"]["amx"]) - {missing}) == "avx2"


@pytest.mark.parametrize("machine", FLOORS)
def test_the_floor_is_enough(machine: str) -> None:
    assert choose_lowering(machine, frozenset(FLOORS[machine])) == list(LOWERINGS[machine])[-1]


@pytest.mark.parametrize("missing", FLOORS["x86_64"])
def test_below_the_floor_is_refused_by_name(missing: str) -> None:
    features = frozenset(LOWERINGS["x86_64"]["avx512"]) - {missing}
    with pytest.raises(UnsupportedMachineError, match=rf"lacks {missing}; the floor is x86-64-v3.*Run it on") as caught:
        choose_lowering("x86_64", features)
    assert "NUMBA_CPU_NAME" not in str(caught.value)


def test_an_aarch64_without_dot_products_is_refused_by_name() -> None:
    message = r"this aarch64 processor lacks dotprod; the floor is Armv8\.2-A .* NUMBA_CPU_NAME=neoverse-n1"
    with pytest.raises(UnsupportedMachineError, match=message):
        choose_lowering("arm64", frozenset({"i8mm", "neon"}))


def test_another_machine_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedMachineError, match=re.escape("'riscv64'")):
        choose_lowering("riscv64", frozenset(LOWERINGS["x86_64"]["avx512"] + LOWERINGS["aarch64"]["neon_i8mm"]))


def test_an_override_names_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "+avx2,-avx512f,+fma")
    assert processor_features() == {"avx2", "fma"}


@pytest.mark.skipif(
    not host._linux_x86(), reason="this system doesn't list the instruction sets: LLVM is asked instead"
)
def test_what_linux_lists_is_what_llvm_finds() -> None:
    """Of what a lowering needs, and of AMX before its permission is asked for."""
    import llvmlite.binding as llvm

    needed = {name for features in LOWERINGS["x86_64"].values() for name in features}
    found = {host._LLVM_NAMES.get(name, name) for name in host._linux_x86()["flags"].split()}
    assert found & needed == host._switched_on(llvm.get_host_cpu_features().flatten()) & needed


class System:
    """The C library of a system that answers a request for AMX's registers with ``result``, and is asked so often."""

    def __init__(self, result: int) -> None:
        self.result, self.asked = result, 0

    def __call__(self, name: None) -> "System":
        return self

    def syscall(self, number: int, code: int, feature: int) -> int:
        assert (number, code, feature) == (158, 0x1023, 18)  # arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
        self.asked += 1
        return self.result


@pytest.fixture
def unasked() -> Iterator[None]:
    """A process that hasn't asked for room for AMX's registers yet."""
    host._ask_for_matrices.cache_clear()
    yield
    host._ask_for_matrices.cache_clear()


@on_x86
@pytest.mark.usefixtures("unasked")
@pytest.mark.parametrize(
    ("system", "result", "expected"), [("Linux", 0, "amx"), ("Linux", -1, "avx512"), ("Darwin", 0, "avx512")]
)
def test_matrix_registers_need_the_system_s_permission(
    monkeypatch: pytest.MonkeyPatch, system: str, result: int, expected: str
) -> None:
    """Asked for once. The names of the others of AMX's instructions go, too: what isn't there must not differ."""
    library = System(result)
    monkeypatch.setenv("NUMBA_CPU_FEATURES", ",".join(f"+{name}" for name in (*AMX, "amx-bf16", "amx-fp16")))
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("ctypes.CDLL", library)
    found = processor_features(), processor_features()
    assert found[0] == found[1]
    assert choose_lowering("x86_64", found[0]) == expected
    assert any(name.startswith("amx") for name in found[0]) == (expected == "amx")
    assert library.asked == (system == "Linux")


@on_x86
@pytest.mark.usefixtures("unasked")
@pytest.mark.parametrize(
    "override", ["+avx2,+fma,+f16c", f"-amx-tile,-amx-int8,+{',+'.join(LOWERINGS['x86_64']['avx512'])}"]
)
def test_what_is_not_wanted_is_not_asked_for(monkeypatch: pytest.MonkeyPatch, override: str) -> None:
    library = System(0)
    monkeypatch.setenv("NUMBA_CPU_FEATURES", override)
    monkeypatch.setattr("ctypes.CDLL", library)
    assert choose_lowering("x86_64", processor_features()) in ("avx2", "avx512")
    assert library.asked == 0


@pytest.mark.skipif(
    LOWERING != "amx",
    reason="this needs AMX (Intel, since Sapphire Rapids) and the system's permission: see cutaway doctor",
)
def test_a_process_asks_before_its_first_kernel_and_lives_with_a_refusal() -> None:
    """In processes of their own, since a permission can't be given back: what the system says at every step."""
    command = [sys.executable, str(HERE / "ask_in_child.py")]
    done = subprocess.run(command, env=subprocess_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {
        "before": False,
        "after": True,
        "older thread": "right",
        "fork": [True, "right"],
        "another program": False,
        "not opened": -signal.SIGILL,
        "closed": -signal.SIGILL,
        "refused with EPERM": "avx512",
        "refused with ENOSYS": "avx512",
        "a small stack for signals": "avx512",
    }


@pytest.mark.skipif(
    not compiles_for_aarch64(),
    reason="this llvmlite can't compile for aarch64: pip install --force-reinstall llvmlite brings one that can",
)
@pytest.mark.parametrize(
    ("processor", "features", "expected"),
    [
        ("generic", "", set()),
        ("generic", "+dotprod", {"dotprod"}),
        ("generic", "+dotprod,+i8mm", {"dotprod", "i8mm"}),
        ("cortex-a72", "", set()),  # Raspberry Pi 4
        ("cortex-a76", "", {"dotprod"}),  # Raspberry Pi 5
        ("neoverse-n1", "+lse,-sve", {"dotprod"}),
        ("neoverse-n1", "-dotprod", set()),
        ("apple-m1", "", {"dotprod"}),
        ("apple-m2", "", {"dotprod", "i8mm"}),
        ("neoverse-v1", "", {"dotprod", "i8mm"}),
    ],
)
def test_what_llvm_uses_on_aarch64_is_found_out(processor: str, features: str, expected: set[str]) -> None:
    """The processors' features are those of their makers' manuals; LLVM knows them by the processor's name."""
    assert features_in_use("aarch64-unknown-linux-gnu", processor, features) == expected


def test_a_generic_processor_has_no_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """So Numba takes the name; with the host's features here and none there, LLVM would end the process."""
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    monkeypatch.delenv("NUMBA_CPU_FEATURES", raising=False)
    monkeypatch.setattr(host, "MACHINE", "x86_64")
    assert processor_features() == frozenset()


@on_x86
@pytest.mark.parametrize("told", [None, "Features\t: asimd\n"])
def test_without_what_linux_says_llvm_is_asked(told: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where /proc isn't mounted, or where an emulator shows its host's."""

    def read_text(path: Path) -> str:
        if told is None:
            raise FileNotFoundError(path)
        return told

    for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"):
        monkeypatch.delenv(name, raising=False)
    expected = processor_features()
    monkeypatch.setattr(host, "_linux_x86", host._linux_x86.__wrapped__)
    monkeypatch.setattr(Path, "read_text", read_text)
    wanted = {name for lowering in LOWERINGS["x86_64"].values() for name in lowering}
    assert processor_features() & wanted == expected & wanted
    assert host.processor_name() == host._llvm_host()[0]
