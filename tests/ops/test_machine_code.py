"""Object files made ready to run: each kind of reference that LLVM writes leads where it should.

On aarch64 the code can't be run here; what was written into its instructions is read back by hand.
"""

import ctypes
import gc
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest

from cutaway.ops.compiler import elf_triple
from cutaway.ops.machine_code import MachineCode
from cutaway.ops.simd.host import MACHINE
from support.machines import compiles_for_aarch64, subprocess_environment
from support.patience import SECONDS

SOURCE = """
@table = internal constant [4 x i64] [i64 11, i64 22, i64 33, i64 44]
@words = internal constant [2 x i64*] [i64* getelementptr ([4 x i64], [4 x i64]* @table, i64 0, i64 2), i64* @shared]
@shared = common global i64 0

declare i64 @labs(i64)

define internal i64 @turned(i64 %step) noinline {
    %word = getelementptr [2 x i64*], [2 x i64*]* @words, i64 0, i64 1
    %pointer = load i64*, i64** %word
    %nothing = load i64, i64* %pointer
    %new = sub i64 %nothing, %step
    ret i64 %new
}

define i64 @entry(i64 %place, i64 %step) {
    %entry = getelementptr [4 x i64], [4 x i64]* @table, i64 0, i64 %place
    %found = load i64, i64* %entry
    %word = getelementptr [2 x i64*], [2 x i64*]* @words, i64 0, i64 0
    %pointer = load i64*, i64** %word
    %third = load i64, i64* %pointer
    %turned = call i64 @turned(i64 %step)
    %positive = call i64 @labs(i64 %turned)
    %common = load i64, i64* @shared
    %a = mul i64 %found, 1000000
    %b = mul i64 %third, 10000
    %ab = add i64 %a, %b
    %abc = add i64 %ab, %positive
    %all = add i64 %abc, %common
    ret i64 %all
}
"""
SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def object_file(source: str, triple: str | None = None, **options: Any) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple or llvm.get_process_triple())
    machine = target.create_target_machine(opt=2, **{"codemodel": "large", "reloc": "static", **options})
    return bytes(machine.emit_object(llvm.parse_assembly(source)))


def kinds(content: bytes) -> set[int]:
    """The kinds of references in a file's sections, read apart from the loader."""
    table, size, count = *struct.unpack_from("<Q", content, 40), *struct.unpack_from("<HH", content, 58)
    found = set()
    for number in range(count):
        kind, offset, length = struct.unpack_from("<4xI16xQQ", content, table + number * size)
        if kind == 4:
            found |= {struct.unpack_from("<8xI", content, offset + at)[0] for at in range(0, length, 24)}
    return found


@pytest.mark.skipif(MACHINE != "x86_64", reason="the code is for x86-64")
@pytest.mark.parametrize("model", ["large", "jitdefault"])
def test_code_constants_and_calls_find_each_other(model: str) -> None:
    code = MachineCode(object_file(SOURCE, codemodel=model))
    entry = SIGNATURE(code.addresses["entry"])
    for place, number in enumerate((11, 22, 33, 44)):
        for step in (0, 17, -100):
            assert entry(place, step) == number * 1000000 + 33 * 10000 + abs(step)


@pytest.mark.parametrize(
    ("triple", "expected"),
    [
        ("x86_64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"),
        ("x86_64-pc-linux-musl", "x86_64-pc-linux-musl"),
        ("arm64-apple-darwin23.1.0", "aarch64-unknown-linux-gnu"),
        ("x86_64-apple-macosx14", "x86_64-unknown-linux-gnu"),
    ],
)
def test_object_files_are_elf_on_every_system(triple: str, expected: str) -> None:
    assert elf_triple(triple) == expected


OF_ANOTHER_SYSTEM = """
import sys
import llvmlite.binding as llvm
llvm.get_process_triple = llvm.get_default_triple = lambda: "x86_64-apple-darwin23.1.0"
import numpy as np
from cutaway.ops.cpu.rows import add_rows
from cutaway.ops.cpu.team import Team, shared_block
shared = shared_block(1)
x = np.arange(6, dtype=np.float32).reshape(2, 3)
add_rows(Team(0, 1, int(shared.ctypes.data), 0), x, np.ones((2, 3), np.float32))
assert "numba" in sys.modules
print(x.tolist())
"""


@pytest.mark.skipif(MACHINE != "x86_64", reason="the code is for x86-64")
def test_code_for_another_system_is_compiled_to_elf(tmp_path: Path) -> None:
    """As on a Mac, as far as it goes on Linux: LLVM compiles for the other system and writes ELF."""
    environment = {**subprocess_environment(), "CUTAWAY_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", OF_ANOTHER_SYSTEM]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout == "[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]\n"


def test_variables_are_refused() -> None:
    """Code that is shared by all threads has none."""
    source = "@count = internal global i64 5\ndefine void @entry() { store volatile i64 6, i64* @count ret void }"
    with pytest.raises(ValueError, match="compiled code has variables of its own"):
        MachineCode(object_file(source))


def test_code_can_be_executed_and_not_written() -> None:
    code = MachineCode(object_file("define void @entry() { ret void }"))
    address = code.addresses["entry"]
    with open("/proc/self/maps") as maps:
        ranges = (line.split()[:2] for line in maps)
        modes = [mode for span, mode in ranges if int(span.split("-")[0], 16) <= address < int(span.split("-")[1], 16)]
    assert [mode[:3] for mode in modes] == ["r-x"]


def test_a_function_that_the_system_lacks_is_refused_by_name() -> None:
    source = "declare void @nobody_has_this()\ndefine void @entry() { call void @nobody_has_this() ret void }"
    with pytest.raises(ValueError, match="compiled code calls 'nobody_has_this', which this system lacks"):
        MachineCode(object_file(source))


@pytest.mark.skipif(MACHINE != "x86_64", reason="the code is for x86-64")
def test_a_reference_of_another_kind_is_refused() -> None:
    content = bytearray(object_file(SOURCE))
    assert 1 in kinds(content)
    changed = 0
    table, count = struct.unpack_from("<Q", content, 40)[0], struct.unpack_from("<H", content, 60)[0]
    for number in range(count):
        kind, offset, length = struct.unpack_from("<4xI16xQQ", content, table + number * 64)
        for at in range(offset, offset + length if kind == 4 else offset, 24):
            if struct.unpack_from("<8xI", content, at)[0] == 1:
                struct.pack_into("<I", content, at + 8, 9)  # R_X86_64_GOTPCREL
                changed += 1
    assert changed > 0
    with pytest.raises(ValueError, match=r"a reference of kind 9 .* can't be filled in"):
        MachineCode(bytes(content))


AARCH64 = """
@number = internal constant i64 81985529216486895
declare i64 @labs(i64)
define internal i64* @own() noinline { ret i64* @number }
define i64* @entry() {
    %absolute = call i64 @labs(i64 -7)
    %found = call i64* @own()
    ret i64* %found
}
"""


def branches(address: int) -> list[int]:
    """Where the calls of a function on aarch64 lead, up to its ``ret``."""
    targets = []
    while (word := ctypes.c_uint32.from_address(address).value) != 0xD65F03C0:
        if word >> 26 == 0b100101:  # bl
            distance = word & 0x3FFFFFF
            targets.append(address + 4 * (distance - (distance >> 25 << 26)))
        elif word >> 26 == 0b000101:  # b: a call in the last place
            distance = word & 0x3FFFFFF
            return [*targets, address + 4 * (distance - (distance >> 25 << 26))]
        address += 4
    return targets


@pytest.mark.skipif(
    not compiles_for_aarch64(),
    reason="this llvmlite can't compile for aarch64: pip install --force-reinstall llvmlite brings one that can",
)
def test_addresses_and_branches_in_instructions_of_aarch64() -> None:
    """Read back from the instructions: an address, a call within the code, a call of the system's library."""
    content = object_file(AARCH64, "aarch64-unknown-linux-gnu", codemodel="jitdefault")
    assert kinds(content) - {257, 260, 261, 282, 283} <= {263, 264, 265, 266, 267, 268, 269}
    code = MachineCode(content)
    system, own = branches(code.addresses["entry"])
    assert own == code.addresses["own"]
    words = struct.unpack("<5I", ctypes.string_at(own, 20))
    address = 0
    for word in words[:4]:  # movz and movk: 16 bits from bit 5 on, shifted by 16 times bits 21 and 22
        assert word >> 23 in (0b110100101, 0b111100101)
        address |= (word >> 5 & 0xFFFF) << 16 * (word >> 21 & 3)
    assert words[4] == 0xD65F03C0  # ret
    assert ctypes.c_int64.from_address(address).value == 81985529216486895
    load, go = struct.unpack("<2I", ctypes.string_at(system, 8))
    assert load == 0b01011000 << 24 | 8 // 4 << 5 | 16  # ldr x16, from 8 bytes on
    assert go == 0b1101011000011111 << 16 | 16 << 5  # br x16
    assert ctypes.c_uint64.from_address(system + 8).value == ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p).value


@pytest.mark.skipif(MACHINE != "x86_64", reason="the code is for x86-64")
def test_code_stays_when_nobody_holds_it() -> None:
    """A thread may be in it."""
    address = MachineCode(object_file(SOURCE)).addresses["entry"]
    gc.collect()
    others = [MachineCode(object_file("define void @entry() { ret void }")) for _ in range(3)]
    assert SIGNATURE(address)(2, 5) == 33 * 1000000 + 33 * 10000 + 5
    assert address not in [other.addresses["entry"] for other in others]
