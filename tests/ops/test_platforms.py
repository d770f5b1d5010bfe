"""Instructions of one processor family are named where docs/platforms.md says, and nowhere else.

A name such as ``llvm.x86.avx2.pmadd.wd`` is found in the sources' string constants, wherever they are built up.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutaway.errors import UnsupportedMachineError

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "cutaway"
FAMILY = re.compile(r"\b(?:llvm\.)?(?:x86|aarch64|arm|ppc|riscv|nvvm|amdgcn)\.[a-z0-9.]+")
ASSEMBLY = {"InlineAsm", "inline_asm", "asm"}


def strings_of(tree: ast.AST) -> Iterator[str]:
    """All string constants but the docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def instructions_of(source: str) -> list[str]:
    """Names of one family's instructions, in order; ``assembly`` for code that is given as text."""
    tree = ast.parse(source)
    found = [name for text in strings_of(tree) for name in FAMILY.findall(text)]
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found + ["assembly"] * len(names & ASSEMBLY)


def told() -> dict[str, list[str]]:
    """File → instructions, sorted, from the page's table."""
    page = (ROOT / "docs" / "platforms.md").read_text("utf-8")
    rows = re.findall(r"^\| \[[^\]]+\]\(\.\./(src/[^)]+)\) \| (`llvm[^|]+) \|", page, re.MULTILINE)
    return {path: sorted(re.findall(r"`([^`]+)`", cell)) for path, cell in rows}


def test_every_instruction_of_one_family_is_in_the_page_s_table() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): sorted(names)
        for path in sorted(PACKAGE.rglob("*.py"))
        if (names := instructions_of(path.read_text("utf-8")))
    }
    assert found == told()
    assert found, "the search finds nothing at all"


def test_all_of_them_are_in_the_vocabulary() -> None:
    assert all(path.startswith("src/cutaway/ops/simd/") for path in told())


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('call("llvm.x86.avx2.pmadd.wd")', ["llvm.x86.avx2.pmadd.wd"]),
        ('"""llvm.x86.avx2.pmadd.wd is told of."""\n\ndef f():\n    "llvm.x86.sse2.pause"\n', []),
        ('PREFIX = "llvm.aarch64.neon."\nNAME = f"llvm.aarch64.neon.{kind}"', ["llvm.aarch64.neon."] * 2),
        ("from llvmlite import ir\nx = ir.InlineAsm(kind, 'nop', '')", ["assembly"]),
        ('names = ("x86_64", "amd64", "llvm.fma")', []),
    ],
)
def test_the_search_sees_what_it_should(source: str, found: list[str]) -> None:
    assert instructions_of(source) == found


def command_line(preparation: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """``cutaway`` in a process that was made to look like another machine first."""
    program = (
        f"import sys\n{preparation}\nsys.argv[1:] = {list(arguments)!r}\nfrom cutaway.cli.main import main\nmain()"
    )
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, encoding="utf-8", check=False
    )


OTHER = "import platform\nplatform.machine = lambda: 'riscv64'"


@pytest.mark.parametrize("arguments", [("run", "smollm2", "Hello"), ("doctor",), ("bench", "smollm2")])
def test_a_machine_without_kernels_is_refused_in_one_line(smollm2_path: Path, arguments: tuple[str, ...]) -> None:
    result = command_line(OTHER, *arguments)
    assert result.returncode == UnsupportedMachineError.exit_code
    assert result.stderr.startswith("error: this processor is 'riscv64'; Cutaway's kernels exist for x86-64")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize("arguments", [("ls",), ("show", "smollm2"), ("pull",), ("--version",)])
def test_what_needs_no_kernels_works_there(smollm2_path: Path, arguments: tuple[str, ...]) -> None:
    result = command_line(OTHER, *arguments)
    assert (result.returncode, result.stderr) == (0, "")


WITHOUT_LINUX = """
import mmap, os, platform, numba
for module, names in ((os, ["sched_getaffinity", "sched_setaffinity"]), (mmap, ["MADV_HUGEPAGE"])):
    for name in names:
        delattr(module, name)
platform.system = lambda: "Darwin"
"""


def test_without_what_only_linux_has_the_answer_is_the_same(smollm2_path: Path) -> None:
    """Affinity and huge pages are missing, as on macOS. (Numba is loaded before, by its own idea of the system.)"""
    arguments = ("run", "smollm2", "Hello", "--seed", "1", "--max-tokens", "4")
    there, here = command_line(WITHOUT_LINUX, *arguments), command_line("", *arguments)
    assert there.returncode == here.returncode == 0, there.stderr
    assert there.stdout == here.stdout
    assert json.loads(command_line(WITHOUT_LINUX, "doctor", "--json").stdout)["limits"]["huge_page_bytes"] is None
