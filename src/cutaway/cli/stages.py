"""What a long command is at, between its start and its output.

In: a console; stages as texts, and how far each is. Out: one line that changes, on a terminal; a line for each stage,
as it begins, elsewhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text


class Stages:
    """Make it by ``stages``."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._text = ""

    def begin(self, text: str) -> None:
        """The next stage."""
        self._text = text
        if self._console.is_terminal:
            self._draw(f"{text} …")
        else:
            self._console.print(f"{text} …", soft_wrap=True, markup=False)

    def at(self, text: str) -> None:
        """How far the stage is; told on a terminal alone."""
        if self._console.is_terminal:
            self._draw(f"{self._text}: {text}")

    def done(self) -> None:
        """Take the line away."""
        if self._console.is_terminal:
            self._write("\r\x1b[K")

    def _draw(self, text: str) -> None:
        line = Text(text)
        line.truncate(self._console.width - 1, overflow="ellipsis")  # a full line would begin another
        self._write(f"\r\x1b[K{line.plain}")

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()


@contextmanager
def stages(console: Console) -> Iterator[Stages]:
    """No line of it is left on a terminal, however the block ends."""
    found = Stages(console)
    try:
        yield found
    finally:
        found.done()
