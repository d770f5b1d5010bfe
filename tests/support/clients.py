"""Other programs that speak to the server, unmodified, in an environment of their own: `make clients` makes it."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.long import LONG
from support.patience import SECONDS

VARIABLE = "CUTAWAY_CLIENTS_PYTHON"
PYTHON = os.environ.get(VARIABLE)

needs_clients = pytest.mark.skipif(
    not (PYTHON and LONG),
    reason=f"wants clients in an environment of their own: make clients (it sets {VARIABLE} and CUTAWAY_LONG_TESTS=1)",
)


def run(
    arguments: Sequence[str | Path], *, folder: Path, stdin: str = "", **variables: str | Path
) -> subprocess.CompletedProcess[str]:
    """Run the clients' interpreter, and nothing of this environment with it.

    folder: where it runs, and its home. variables: of its environment. AssertionError where it fails.
    """
    assert PYTHON is not None
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    given = {name: str(value) for name, value in variables.items()}
    ended = subprocess.run(
        [Path(PYTHON).absolute(), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=SECONDS,
        cwd=folder,
        env={**kept, "HOME": str(folder), "PYTHONUTF8": "1", **given},
    )
    assert ended.returncode == 0, f"{ended.stdout[-2000:]}\n{ended.stderr[-6000:]}"
    return ended


def report(script: Path, *arguments: str, folder: Path) -> Any:
    """The JSON that a script prints, run by the clients' interpreter."""
    return json.loads(run([script, *arguments], folder=folder).stdout)
