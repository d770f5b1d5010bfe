"""The progress bar: drawn on a terminal for several requests, and for nobody else."""

import io
import sys

import pytest

from cutaway.engine.progress import progress_bar


class Terminal(io.StringIO):
    """Standard error, as if somebody looked at it."""

    def isatty(self) -> bool:
        return True


def drawn(monkeypatch: pytest.MonkeyPatch, error: io.StringIO, count: int, shown: bool) -> str:
    """What is written when all requests end."""
    monkeypatch.setattr(sys, "stderr", error)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "JUPYTER_COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar(count, shown) as ended:
        for _ in range(count):
            ended()
    return error.getvalue()


def test_a_terminal_sees_how_many_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    text = drawn(monkeypatch, Terminal(), 3, True)
    assert "requests" in text
    assert "3/3" in text


@pytest.mark.parametrize(
    ("error", "count", "shown"),
    [(Terminal(), 1, True), (Terminal(), 3, False), (io.StringIO(), 3, True)],
    ids=["a single one", "not wanted", "no terminal"],
)
def test_nobody_else_sees_a_bar(monkeypatch: pytest.MonkeyPatch, error: io.StringIO, count: int, shown: bool) -> None:
    assert drawn(monkeypatch, error, count, shown) == ""
