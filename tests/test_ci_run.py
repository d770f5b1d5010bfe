"""``.ci/run`` runs the README's commands and hides no failure. It is run on a copy, with scripts in the place of
the tools.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from support.patience import SECONDS

ROOT = Path(__file__).parent.parent
TOOLS = ("pip", "cutaway", "pytest", "ruff", "mypy")
CLOSING = "===== 3 passed, 1 skipped in 0.10s ====="


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository in which every tool logs its call and succeeds."""
    root = tmp_path / "a folder"
    (root / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", root / ".ci" / "run")
    shutil.copy(ROOT / "README.md", root / "README.md")
    programs = root / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(shutil.which("python3") or "python3")
    for tool in TOOLS:
        replace(root, tool)
    replace(root, "pytest", f"echo '{CLOSING}'")
    return root


def replace(root: Path, tool: str, body: str = "") -> None:
    """Put a script in the place of a tool."""
    path = root / ".venv" / "bin" / tool
    path.write_text(f'#!/bin/sh\necho "{tool} $* [${{PIP_CONSTRAINT-}}]" >> calls\n{body}\n')
    path.chmod(0o755)


def ci(root: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", ".ci/run"], cwd=root, capture_output=True, text=True, encoding="utf-8", timeout=SECONDS
    )


def test_it_can_be_executed() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_it_runs_the_command_of_the_readme_with_pinned_versions(checkout: Path) -> None:
    result = ci(checkout)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == CLOSING
    pinned = (checkout / "constraints.txt").as_uri()
    assert (checkout / "calls").read_text().splitlines() == [
        f"pip install . [{pinned}]",
        f"cutaway run smollm2 What is the capital of France? [{pinned}]",
        f"pip install -e .[test] [{pinned}]",
        "pytest  []",
        f"pip install -e .[dev] [{pinned}]",
        "pytest -q tests/engine/test_notebook.py []",
        "ruff check . []",
        "ruff format --check . []",
        "mypy  []",
    ]


def test_another_command_in_the_readme_is_another_command_here(checkout: Path) -> None:
    readme = checkout / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(text.replace("&& .venv/bin/pytest\n", "&& .venv/bin/pytest --strict\n"), encoding="utf-8")
    assert ci(checkout).returncode == 0
    assert "pytest --strict []" in (checkout / "calls").read_text().splitlines()


def test_a_readme_without_the_command_is_refused(checkout: Path) -> None:
    readme = checkout / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(text.replace("<!-- command: test -->", ""), encoding="utf-8")
    assert ci(checkout).returncode != 0


@pytest.mark.parametrize("tool", TOOLS)
def test_a_failing_tool_fails_it(checkout: Path, tool: str) -> None:
    replace(checkout, tool, f"echo '{CLOSING}'; exit 1")
    assert ci(checkout).returncode != 0


@pytest.mark.parametrize(
    "output",
    ["", "===== 4 skipped in 0.10s =====", "===== no tests ran in 0.01s =====", "1 passed so far, then killed"],
)
def test_a_run_without_a_passed_test_fails_it(checkout: Path, output: str) -> None:
    """Even where pytest itself is content."""
    replace(checkout, "pytest", f"echo '{output}'")
    assert ci(checkout).returncode != 0
