"""Which lowering a machine gets, and the refusal of those below the floor."""

import re

import pytest

from cutaway.errors import UnsupportedMachineError
from cutaway.ops.simd.lowering import AVX512, FLOOR, choose_lowering, processor_features


def test_the_best_lowering_that_the_processor_has() -> None:
    assert choose_lowering("x86_64", frozenset(FLOOR)) == "avx2"
    assert choose_lowering("AMD64", frozenset(FLOOR + AVX512)) == "avx512"


@pytest.mark.parametrize("missing", AVX512)
def test_avx512_needs_all_of_its_parts(missing: str) -> None:
    features = set(FLOOR + AVX512) - {missing}
    assert choose_lowering("x86_64", frozenset(features)) == "avx2"


@pytest.mark.parametrize("missing", FLOOR)
def test_below_the_floor_is_refused_by_name(missing: str) -> None:
    with pytest.raises(UnsupportedMachineError, match=rf"lacks {missing}; the floor is x86-64-v3.*Run it on"):
        choose_lowering("x86_64", frozenset(FLOOR) - {missing})


def test_another_machine_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedMachineError, match=re.escape("'riscv64'")):
        choose_lowering("riscv64", frozenset(FLOOR))


def test_an_override_names_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.config.CPU_FEATURES", "+avx2,-avx512f,+fma")
    assert processor_features() == {"avx2", "fma"}
