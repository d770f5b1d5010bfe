"""The distributions: what is in them, and that the wheel answers when it is installed in an empty environment."""

import ast
import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cutaway
from support.long import LONG

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
PINNED = {"PIP_CONSTRAINT": (ROOT / "constraints.txt").resolve().as_uri(), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the source distribution, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    result = subprocess.run(command, env={**os.environ, **PINNED}, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    (built,) = distributions.glob("*.whl")
    return built


def test_the_source_distribution_has_what_the_tests_need(distributions: Path) -> None:
    (built,) = distributions.glob("*.tar.gz")
    top = f"cutaway-{cutaway.__version__}/"
    with tarfile.open(built) as archive:
        names = {name.removeprefix(top) for name in archive.getnames()}
    for folder in ("src", "tests", "benchmarks", "docs"):
        kinds = (".py", ".md", ".html", ".js", ".css", ".svg")
        here = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*") if path.suffix in kinds}
        assert here
        assert here <= names
    # The files that tests of the repository itself read.
    assert {
        ".ci/run",
        "Makefile",
        "constraints.txt",
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "LICENSE",
    } <= names


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"cutaway-{cutaway.__version__}.dist-info/"
    parts = ("*.py", "*.jinja", "static/*")  # the code, the built-in chat templates, the pages
    sources = {path.relative_to(ROOT / "src").as_posix() for part in parts for path in (ROOT / "src").rglob(part)}
    assert {name for name in names if not name.startswith(info)} == sources | {"cutaway/py.typed"}
    assert {f"{info}METADATA", f"{info}entry_points.txt", f"{info}licenses/LICENSE"} <= names


def test_what_the_package_imports_is_declared(wheel: Path) -> None:
    """Every module's imports, also those within functions."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    declared = {
        re.split(r"[^\w.-]", line.removeprefix("Requires-Dist: "))[0].lower()
        for line in lines
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    }
    assert len(declared) > 5
    imported: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
    foreign = imported - set(sys.stdlib_module_names) - {"cutaway"}
    assert {name.replace("_", "-") for name in foreign} - declared == {
        "llvmlite",  # comes with numba, which pins the one that fits
        "starlette",  # comes with fastapi, which is made of it
        "h11",  # comes with uvicorn, whose connections speak it
        "cryptography",  # signs receipts, where it is: the extra "receipts"
        "llama-cpp",  # a peer that bench measures, where it is
        "torch",  # peers that parity compares with, where they are
        "transformers",
    }


IMPORT_ALL = """
import importlib, pkgutil, sys, cutaway
names = [each.name for each in pkgutil.walk_packages(cutaway.__path__, "cutaway.")]
for name in names:
    if name != "cutaway.__main__":
        importlib.import_module(name)
print(cutaway.__file__, len(names))
"""


def test_the_installed_wheel_is_whole(wheel: Path, smollm2_path: Path, tmp_path: Path) -> None:
    """From a folder beside the dependencies that are here, every module is loaded, and a model is read. What has to
    be compiled is left to the long test, and to whoever installs as the README says.
    """
    there = tmp_path / "there"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", there, wheel]
    subprocess.run(install, check=True, env={**os.environ, **PINNED})
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    clean["PYTHONPATH"] = str(there)

    def run(*command: str | Path) -> str:
        options: dict[str, Any] = {"capture_output": True, "text": True, "encoding": "utf-8"}
        return subprocess.run(command, check=True, cwd=tmp_path, env=clean, **options).stdout

    program = there / "bin" / "cutaway"
    assert run(program, "--version") == f"cutaway {cutaway.__version__}\n"
    shown = json.loads(run(program, "show", smollm2_path, "--json"))
    assert shown["ends_answer"] == {"<|endoftext|>": 0, "<|im_end|>": 2}
    file, count = run(sys.executable, "-c", IMPORT_ALL).split()
    assert Path(file) == there / "cutaway" / "__init__.py"
    package = ROOT / "src" / "cutaway"
    assert int(count) == sum(1 for path in package.rglob("*.py") if path != package / "__init__.py")


@pytest.mark.skipif(not LONG, reason="installs and compiles anew: CUTAWAY_LONG_TESTS=1 pytest tests/test_packaging.py")
def test_the_wheel_answers_in_an_empty_environment(wheel: Path, smollm2_path: Path, tmp_path: Path) -> None:
    """Installed with its dependencies only, run from elsewhere, it continues a text as transformers does."""
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    install = [programs / "python", "-m", "pip", "install", "-q", wheel]
    subprocess.run(install, check=True, env={**os.environ, **PINNED})
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(*arguments: str) -> str:
        command = [programs / "cutaway", *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, encoding="utf-8", cwd=tmp_path, env=clean
        ).stdout

    assert run("--version") == f"cutaway {cutaway.__version__}\n"
    assert "smollm2" in run("pull")
    (long,) = (
        prompt for prompt in json.loads((FIXTURES / "prompts.json").read_text())["prompts"] if prompt["name"] == "long"
    )
    (tmp_path / "prompt.txt").write_bytes(long["text"].encode())
    options = ["--raw", "--file", "prompt.txt", "--temperature", "0", "--max-tokens", "5", "--json"]
    answer = json.loads(run("run", "smollm2", *options))
    reference = np.load(FIXTURES / "smollm2_reference.npz")
    assert reference["long.greedy_margin"][:5].min() > 1, "nats: int8 activations can't change these choices"
    assert answer["prompt_token_ids"] == long["ids"]
    assert answer["token_ids"] == reference["long.greedy_ids"][:5].tolist()
