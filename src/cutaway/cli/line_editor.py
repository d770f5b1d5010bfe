"""Lines from the user: edited and with a history on a terminal, as they come from a pipe.

In: standard input. Out: texts; one between two lines of three quotes may have several lines.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from cutaway.cli.interrupts import Interrupts
from cutaway.errors import InvalidRequestError
from cutaway.hub.paths import cache_root

PROMPT, CONTINUED = ">>> ", "... "
QUOTES: Final = '"""'
KEPT_LINES: Final = 1000  # of the history


def history_path() -> Path:
    """Where the lines of earlier chats are kept, readable by the user alone."""
    return cache_root() / "chat_history"


def read_lines(interactive: bool, history: bool, interrupts: Interrupts) -> Iterator[str]:
    """Texts, until the input ends. On a terminal, Ctrl-C throws away what was typed so far.

    history: on a terminal, know the lines of earlier chats, and keep those of this one. interrupts: Ctrl-C is heard
    while a text is typed.
    """
    save = _open_history(history) if interactive else lambda: None
    ask: Callable[[str], str] = _read_edited if interactive else _read_plain
    try:
        while True:
            try:
                with interrupts.heard():
                    text = _read_text(ask)
            except KeyboardInterrupt:
                if not interactive:
                    raise
                sys.stderr.write("\n")
                continue
            except EOFError:
                if interactive:
                    sys.stderr.write("\n")
                return
            yield text
    finally:
        save()


def _read_text(ask: Callable[[str], str]) -> str:
    """One line, or what stands between three quotes and three quotes."""
    line = ask(PROMPT)
    if not line.lstrip().startswith(QUOTES):
        return line
    text = line.lstrip()[len(QUOTES) :]
    while not text.rstrip().endswith(QUOTES):
        try:
            text += "\n" + ask(CONTINUED)
        except EOFError:
            raise InvalidRequestError(f"the input ended within {QUOTES}. Close it with {QUOTES}.", "prompt") from None
    return text.rstrip()[: -len(QUOTES)].strip("\n")


def _read_edited(prompt: str) -> str:
    """``input``, which looks for signals once more while it leaves for Ctrl-C: a handler that has nothing to raise for
    a second one then makes CPython raise SystemError.
    """
    try:
        return input(prompt)
    except SystemError as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        raise KeyboardInterrupt from None


def _read_plain(_prompt: str) -> str:
    line = sys.stdin.buffer.readline()
    if not line:
        raise EOFError
    try:
        return line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"standard input is not UTF-8 text: byte {error.start} of a line is {line[error.start]:#04x}.", "prompt"
        ) from error


def _open_history(kept: bool) -> Callable[[], None]:
    """Let ``input`` edit lines and, if they are kept, know the earlier ones; the result saves them."""
    try:
        import readline
    except ImportError:  # a Python built without it: lines can be typed, not edited
        return lambda: None
    if not kept:
        return lambda: None
    path = history_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        history = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK, 0o600)
        is_file = stat.S_ISREG(os.fstat(history).st_mode)
        os.close(history)
        if not is_file:  # reading a pipe would never end
            return lambda: None
        readline.read_history_file(path)
    except OSError:  # a history that can't be read is begun anew; none that can't be written is kept
        readline.clear_history()
    readline.set_history_length(KEPT_LINES)

    def save() -> None:
        try:
            readline.write_history_file(path)
        except OSError as error:
            sys.stderr.write(f"the history can't be written to {path} ({error.strerror}).\n")

    return save
