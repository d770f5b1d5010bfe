"""What the vocabulary and the tile kernels become on aarch64, read from LLVM's assembly: it can be compiled anywhere.

Two processors stand for the two lowerings. Neoverse N1 has dot products; Neoverse V1 has those of unsigned with signed
bytes, too. docs/platforms.md says what was run, and where.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.machines import compiles_for_aarch64, subprocess_environment

HERE = Path(__file__).parent
PROCESSORS = {"neon": "neoverse-n1", "neon_i8mm": "neoverse-v1"}
FORMATS = ("Q4_1", "Q8_0", "Q6_K", "IQ4_NL")

_TABLE = """
    add fadd, sub fsub, mul fmul, div fdiv, sqrt fsqrt, absolute fabs, round_even frintx, fma fmla, maximum fcmgt,
    minimum fcmgt, to_float scvtf, to_int fcvtzs, maximum_int smax, add_int add, sub_int sub, mul_int mul, xor_int eor,
    and_uint and, shift_right ushl, mul_high_uint umull2, replace_above cmgt, power_of_two shl,
    and_bytes and, or_bytes orr, sub_bytes sub, shift_left_bytes ushl, shift_right_bytes ushl, look_up_bytes tbl,
    load_half fcvtl2, store_sized fcvtn2, load_sized_byte scvtf, store_sized_byte frintx,
    load_bfloat shll2, load_int8 sshll
"""
WORDS = dict(pair.split() for pair in _TABLE.split(","))
"""Word → the instruction on four lanes (of 16 bytes) of which it takes four, in the names of Arm's manual."""
ALSO = {"mul_high_uint": "umulh"}
"""Where there is SVE, LLVM takes it for this one, at the same length."""
OTHER_COUNTS = {"load_half": 2, "store_sized": 2, "load_bfloat": 2, "load_int8": 3}
"""These widen or narrow: one instruction for the lower half of a register, one for the upper half."""

NO_TARGET = "this llvmlite can't compile for aarch64: pip install --force-reinstall llvmlite brings one that can"

CALL = re.compile(r"^(bl|blr|b [^.])")
SCALAR = re.compile(r"^(f(add|sub|mul|div|sqrt|n?madd|n?msub|max|min|cvt\w*|rint\w)|[su]cvtf|s?mull?|madd) [shdwx]\d")
ONE_LANE = re.compile(r"^(umov|smov|ins|mov) .*\.[bhsd]\[\d+\]")


def compile_for(lowering: str, folder: Path) -> dict[str, list[str]]:
    command = [sys.executable, str(HERE.parent / "support" / "aarch64.py"), PROCESSORS[lowering], *FORMATS]
    environment = {**subprocess_environment(), "CUTAWAY_CACHE": str(folder)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    answer = json.loads(result.stdout)
    assert answer["lowering"] == lowering
    functions: dict[str, list[str]] = answer["functions"]
    return functions


@pytest.fixture(scope="module", params=list(PROCESSORS))
def compiled(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, list[str]]]:
    """(lowering, function → instructions)."""
    if not compiles_for_aarch64():
        pytest.skip(NO_TARGET)
    return request.param, compile_for(request.param, tmp_path_factory.mktemp("cache"))


def names(instructions: list[str], operand: str = "") -> "Counter[str]":
    """How often each instruction occurs, of those whose operands contain the text."""
    return Counter(text.split()[0] for text in instructions if operand in text)


def test_each_word_is_four_vector_instructions(compiled: tuple[str, dict[str, list[str]]]) -> None:
    _, functions = compiled
    for word, instruction in WORDS.items():
        counts = names(functions[word], " v") + names(functions[word], " z")
        count = counts[instruction] or counts[ALSO.get(word, instruction)]
        assert count == OTHER_COUNTS.get(word, 4), (word, functions[word])


def test_nothing_is_called_and_no_lane_goes_alone(compiled: tuple[str, dict[str, list[str]]]) -> None:
    """No library's fmaf or half conversion, and no vector taken apart. (Some words give or take one.)"""
    of_one_number = {
        "load_half_scalar",
        "store_scalar_sized",
        "store_scalar_byte",
        "lane_sum",
        "lane_max",
        "lane_sum_int",
        "lane_max_int",
    }
    for name, instructions in compiled[1].items():
        assert [text for text in instructions if CALL.match(text)] == [], name
        if name not in of_one_number | {"lanes_at_most", "look_up_bytes"}:
            assert [text for text in instructions if SCALAR.match(text) or ONE_LANE.match(text)] == [], name
    assert names(compiled[1]["load_half_scalar"])["fcvt"] == 1
    assert names(compiled[1]["store_scalar_sized"])["fcvt"] == 1
    assert names(compiled[1]["store_scalar_byte"])["frintx"] == 1


def test_a_product_and_a_sum_are_rounded_apart(compiled: tuple[str, dict[str, list[str]]]) -> None:
    counts = names(compiled[1]["mul_then_add"])
    assert (counts["fmul"], counts["fadd"], counts["fmla"]) == (4, 4, 0)


def test_functions_made_of_words(compiled: tuple[str, dict[str, list[str]]]) -> None:
    """The words that their sources in ops/cpu/math.py have, four times: nothing is fused, left out or added."""
    for name, words in (
        ("exp", {"fmla": 9, "fmul": 2, "fadd": 2}),
        ("add_exp", {"fmla": 8, "fmul": 1, "fadd": 2}),
        ("log", {"fmla": 11, "fmul": 3, "fadd": 2}),
    ):
        counts = names(compiled[1][name])
        assert {instruction: counts[instruction] for instruction in words} == {key: 4 * n for key, n in words.items()}


def test_the_dot_products(compiled: tuple[str, dict[str, list[str]]]) -> None:
    """Two rows of 16 lanes: eight instructions, and one more a row for the offset of bytes above 127."""
    lowering, functions = compiled
    instruction, other = ("usdot", "sdot") if lowering == "neon_i8mm" else ("sdot", "usdot")
    offset = 1 if lowering == "neon" else 0
    for word, count in (("dot_u7", 8), ("dot_u8", 8 + 2 * offset)):
        counts = names(functions[word])
        assert (counts[instruction], counts[other], counts["mul"]) == (count, 0, 0)


def test_the_processor_s_words(compiled: tuple[str, dict[str, list[str]]]) -> None:
    functions = compiled[1]
    assert names(functions["pause"])["isb"] == 1
    assert names(functions["cycles"], "CNTVCT_EL0")["mrs"] == 1  # the timer, which programs may read; not PMCCNTR_EL0
    assert names(functions["atomic_add"])["ldaddal"] == 1  # acquires and releases
    assert names(functions["set_float_environment"], "FPCR") == {"mrs": 1, "msr": 1}


@pytest.mark.parametrize("format_name", FORMATS)
def test_tile_kernels(compiled: tuple[str, dict[str, list[str]]], format_name: str) -> None:
    """Dot products and fused multiply-adds on vectors; twice as many for two rows; no vector of one row is spilt."""
    lowering, functions = compiled
    one, many = functions[f"{format_name} one"], functions[f"{format_name} many"]
    instruction = "usdot" if lowering == "neon_i8mm" else "sdot"
    dots = names(one)[instruction]
    assert dots >= 4
    assert names(many)[instruction] == 2 * dots
    assert names(one, ".4s")["fmla"] >= 4
    spilt = [text for text in one if re.match(r"(st|ld)(r|p|ur) q.*\[sp", text)]
    assert len(spilt) <= (2 if format_name == "Q6_K" else 0), spilt


def test_the_offset_of_bytes_above_127_is_exact() -> None:
    """Σ u · s = Σ (u - 128) · s - Σ (-128) · s, with u - 128 made by flipping the top bit: for every u and s."""
    unsigned, signed = np.arange(256, dtype=np.uint8), np.arange(-128, 128, dtype=np.int8)
    flipped = (unsigned ^ np.uint8(128)).view(np.int8)
    pairs = flipped.astype(np.int32)[:, None] * signed - np.int32(-128) * signed
    assert np.array_equal(pairs, unsigned.astype(np.int32)[:, None] * signed)
