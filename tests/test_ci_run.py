"""``.ci/run`` runs the README's commands and hides no failure. It is run on a copy, with scripts in the place of
the tools.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import SECONDS

ROOT = Path(__file__).parent.parent
# What the script itself calls.
COMMANDS = ("bash", "sh", "env", "sed", "grep", "tail", "tee", "mktemp", "rm", "dirname", "cat", "id")
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
    (programs / "python").symlink_to(Path(sys.executable).resolve())  # no shim, which would want more than COMMANDS
    for tool in TOOLS:
        replace(root, tool)
    replace(root, "pytest", f"echo '{CLOSING}'")
    (root / "bin").mkdir()
    for command in COMMANDS:
        (root / "bin" / command).symlink_to(shutil.which(command) or command)
    for program in ("chromium", "apt-get", "sudo"):
        replace(root, program, 'test "$1" = -n && shift && "$@"' if program == "sudo" else "", "bin")
    return root


def replace(root: Path, tool: str, body: str = "", folder: str = ".venv/bin") -> None:
    """Put a script in the place of a tool."""
    path = root / folder / tool
    path.write_text(f'#!/bin/sh\necho "{tool} $* [${{PIP_CONSTRAINT-}}]" >> calls\n{body}\n')
    path.chmod(0o755)


def ci(root: Path) -> "subprocess.CompletedProcess[str]":
    command, path = ["bash", ".ci/run"], str(root / "bin")
    return subprocess.run(
        command, cwd=root, env={"PATH": path}, capture_output=True, text=True, encoding="utf-8", timeout=SECONDS
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
        f"cutaway run smollm2 What is gravity? [{pinned}]",
        f"pip install -e .[test] [{pinned}]",
        "pytest -n 2 []",
        f"pip install -e .[dev] [{pinned}]",
        "pytest -q tests/engine/test_notebook.py []",
        "ruff check . []",
        "ruff format --check . []",
        "mypy  []",
    ]


def test_another_command_in_the_readme_is_another_command_here(checkout: Path) -> None:
    readme = checkout / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(text.replace("&& .venv/bin/pytest -n 2\n", "&& .venv/bin/pytest --strict\n"), encoding="utf-8")
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


def test_tests_know_that_a_browser_is_required(checkout: Path) -> None:
    replace(checkout, "pytest", f"echo \"CUTAWAY_BROWSER_TESTS=$CUTAWAY_BROWSER_TESTS\"; echo '{CLOSING}'")
    assert "CUTAWAY_BROWSER_TESTS=required" in ci(checkout).stdout
    assert "apt-get" not in (checkout / "calls").read_text()


@pytest.mark.parametrize("works", [True, False])
def test_a_missing_browser_is_installed(checkout: Path, works: bool) -> None:
    (checkout / "bin" / "chromium").unlink()
    replace(checkout, "apt-get", "" if works else "exit 100", "bin")
    result = ci(checkout)
    calls = (checkout / "calls").read_text().splitlines()
    found = [call.partition(" [")[0] for call in calls if call.startswith("apt-get")]
    if works:
        assert found == ["apt-get -q update", "apt-get -q install -y --no-install-recommends chromium"]
        assert result.returncode == 0, result.stderr
    else:
        assert result.returncode == 1
        assert "a browser: FAILED" in result.stderr
    assert any(call.startswith("pytest") for call in calls), "all else is done in any case"
