"""``cutaway`` as a process of its own, and the log that it writes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


def process(*arguments: str, **variables: str) -> AbstractContextManager["subprocess.Popen[str]"]:
    """``cutaway serve`` as a process of its own."""
    return started_as("-m", "cutaway", "serve", *arguments, **variables)


@contextmanager
def started_as(*arguments: str, **variables: str) -> Iterator["subprocess.Popen[str]"]:
    """A process of this Python; killed at the end, if it still runs."""
    command = [sys.executable, *arguments]
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **variables}
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def line_with(started: "subprocess.Popen[str]", part: str) -> str:
    """The next line of the log that has this."""
    assert started.stderr is not None
    for line in started.stderr:
        if part in line:
            return line
    raise AssertionError(f"it ended without {part!r}")
