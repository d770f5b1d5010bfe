"""What the command line prints: answers on standard output, everything else on standard error.

In: text, progress, errors. Out: characters. Progress is drawn on a terminal only; a pipe gets one line at the end of
each stage.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.text import Text

INTERRUPTED = 128 + 2  # the exit code after SIGINT, as shells count

STAGES = {
    "wait": "another process is fetching",
    "download": "downloading",
    "unpack": "unpacking and checking",
    "check": "checking",
    "digest": "reading the model for its digest",
}

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def error_console() -> Console:
    """The console for everything that is not the answer. No text is read as markup: a token may look like it."""
    return Console(stderr=True, highlight=False, emoji=False, markup=False)


def print_message(kind: str, text: str) -> None:
    """``error: …`` or ``warning: …`` on standard error, the text as it is: a path may look like markup."""
    style = "bold red" if kind == "error" else "yellow"
    error_console().print(Text.assemble((f"{kind}:", style), " ", text), soft_wrap=True)


def say(text: str) -> None:
    """A part of the answer on standard output, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def generated(statistics: Any) -> str:
    """How many tokens, and how fast; one token has no rate."""
    count = statistics.generated_tokens
    return "1 token" if count == 1 else f"{count} tokens at {statistics.decode_rate:.0f} tok/s"


def escaped(text: str) -> str:
    """Foreign text on one line; what a terminal would obey becomes an escape."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def quantity(value: float, unit: str) -> str:
    """Three digits with a decimal prefix: ``98.4 MB``; nothing for 0."""
    if value == 0:
        return ""
    for factor, prefix in _PREFIXES:
        if abs(value) >= 0.9995 * factor:
            return f"{_three_digits(value / factor)} {prefix}{unit}"
    return f"{_three_digits(value)} {unit}"


def _three_digits(value: float) -> str:
    return f"{value:.{max(0, 2 - (len(str(int(abs(value)))) - 1))}f}" if value != int(value) else f"{int(value)}"


class FetchProgress:
    """The progress bar of a fetch; ``hub.Progress``. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._stage = ""
        self._task: Any = None

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """Draw how far the stage is; a pipe gets a line when a stage begins."""
        if not self._console.is_terminal:
            if stage != self._stage:
                self._console.print(f"{STAGES.get(stage, stage)} …")
            self._stage = stage
            return
        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.start()
        if stage != self._stage:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(STAGES.get(stage, stage), total=total)
            self._stage = stage
        self._bar.update(self._task, completed=done, total=total)
        if stage in ("unpack", "check", "digest") and done == total:
            self._stop()

    @property
    def active(self) -> bool:
        """Whether the bar has the terminal's last line."""
        return self._bar is not None

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar, self._task, self._stage = None, None, ""

    def __enter__(self) -> "FetchProgress":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop()


class CompileProgress:
    """One line that counts the kernels as they are compiled, on first use, when no download's bar has the line."""

    def __init__(self, console: Console, fetch: FetchProgress) -> None:
        self._console, self._fetch = console, fetch
        self._count = 0
        self._begin = time.perf_counter()

    def __call__(self, name: str) -> None:
        """A kernel is being compiled: count it."""
        if self._count == 0:
            self._begin = time.perf_counter()
            if not self._console.is_terminal:
                self._console.print("compiling kernels (first use; kept in the cache) …")
        self._count += 1
        if self._console.is_terminal and not self._fetch.active:
            sys.stderr.write(
                f"\r\x1b[Kcompiling kernels (first use; kept in the cache): {self._count} {name.strip('_')}"
            )
            sys.stderr.flush()

    def done(self) -> None:
        """Replace the line by a summary; nothing if nothing was compiled."""
        if self._clear():
            kernels = "1 kernel" if self._count == 1 else f"{self._count} kernels"
            self._console.print(f"compiled {kernels} in {time.perf_counter() - self._begin:.1f} s")
            self._count = 0

    def abandon(self) -> None:
        """Take the line away without a summary, if it is still there: the work was not finished."""
        self._clear()
        self._count = 0

    def _clear(self) -> bool:
        """Take the line away; whether there was one."""
        if self._count and self._console.is_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        return self._count > 0


@contextmanager
def first_use(console: Console) -> Iterator[tuple[FetchProgress, CompileProgress]]:
    """Shows what a model's first use takes, fetching and compiling; no line of it is left, however the block ends."""
    from cutaway.ops.kernel_cache import (
        compilations,
    )  # here: the other commands shall not wait for the compiler to load

    with FetchProgress(console) as fetching:
        compiling = CompileProgress(console, fetching)
        with compilations(compiling):
            try:
                yield fetching, compiling
            finally:
                compiling.abandon()
