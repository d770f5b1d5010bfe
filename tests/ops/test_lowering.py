"""Which lowering a machine gets, and the refusal of those below the floor."""

import re

import pytest

from cutaway.errors import UnsupportedMachineError
from cutaway.ops.simd.lowering import LOWERINGS, choose_lowering, features_in_use, lacking, processor_features
from support.machines import compiles_for_aarch64

CASES = [(machine, lowering) for machine, lowerings in LOWERINGS.items() for lowering in lowerings]
NAMES = {"x86_64": ("x86_64", "AMD64"), "aarch64": ("aarch64", "arm64")}
FLOORS = {"x86_64": ("avx2", "fma", "f16c"), "aarch64": ("dotprod",)}


@pytest.mark.parametrize(("machine", "lowering"), CASES)
def test_the_best_lowering_that_the_processor_has(machine: str, lowering: str) -> None:
    features = frozenset(LOWERINGS[machine][lowering])
    for name in NAMES[machine]:
        assert choose_lowering(name, features | {"something"}) == lowering


@pytest.mark.parametrize(
    ("machine", "best", "next_best"), [("x86_64", "avx512", "avx2"), ("aarch64", "neon_i8mm", "neon")]
)
def test_the_best_needs_all_of_its_parts(machine: str, best: str, next_best: str) -> None:
    floor, all_of_them = set(FLOORS[machine]), set(LOWERINGS[machine][best])
    assert lacking(machine, frozenset(all_of_them)) == (best, ())
    for missing in all_of_them - floor:
        features = frozenset(all_of_them - {missing})
        assert choose_lowering(machine, features) == next_best
        assert lacking(machine, features) == (best, (missing,))


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
    monkeypatch.setattr("numba.config.CPU_FEATURES", "+avx2,-avx512f,+fma")
    assert processor_features() == {"avx2", "fma"}


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
