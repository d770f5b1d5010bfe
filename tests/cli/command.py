"""The command ``cutaway`` as a user runs it: a process of its own."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cutaway.cli.main import _exit_code
from support.patience import SECONDS

COMMAND = [sys.executable, "-m", "cutaway"]
SETTINGS = ("CUTAWAY_OFFLINE", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM", "PYTHONIOENCODING")


def environment(**changes: str) -> dict[str, str]:
    """This process's, without what changes the output; its cache unless another is named."""
    kept = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return {**kept, "PYTHONUTF8": "1", **changes}


def cutaway(
    *arguments: str | bytes | Path, given: bytes | None = None, env: dict[str, str] | None = None, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """Run to the end. given: standard input; None is an empty one."""
    process = subprocess.run(
        [*COMMAND, *arguments],
        input=given or b"",
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        env=env or environment(),
        timeout=SECONDS,
        check=False,
        **options,
    )
    output = process.stdout.decode("utf-8") if process.stdout is not None else ""
    return subprocess.CompletedProcess(process.args, process.returncode, output, process.stderr.decode("utf-8"))


def cutaway_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str | bytes
) -> "subprocess.CompletedProcess[str]":
    """The same in this process, which is quicker, for what ends before a model is loaded; with an empty standard
    input.
    """
    monkeypatch.setattr(sys, "argv", ["cutaway", *map(os.fsdecode, arguments)])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    code = _exit_code()
    said = capsys.readouterr()
    return subprocess.CompletedProcess(list(arguments), code, said.out, said.err)


def start(*arguments: str | Path, env: dict[str, str] | None = None, **options: Any) -> "subprocess.Popen[bytes]":
    """Start, with pipes for output and errors, as the head of a process group."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=options.pop("stdin", subprocess.DEVNULL),
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=options.pop("stderr", subprocess.PIPE),
        env=env or environment(),
        start_new_session=True,
        **options,
    )


def assert_refused(result: "subprocess.CompletedProcess[str]", code: int, *parts: str) -> None:
    """One line ``error: …`` that has the parts, nothing else; that exit code."""
    assert result.stdout == ""
    assert result.stderr.startswith("error: "), result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    assert "Traceback" not in result.stderr
    for part in parts:
        assert part in result.stderr
    assert result.returncode == code


def files_below(folder: Path) -> list[str]:
    """Names of all files in the folder and its folders; an empty folder for kernels is made by every start."""
    return sorted(path.name for path in folder.rglob("*") if not path.is_dir())
