"""Ctrl-C in a chat on a terminal: it interrupts what is marked as interruptible, once, and nothing else.

In: SIGINT. Out: KeyboardInterrupt, within ``with interrupts.heard():`` alone. A key that is held, or pressed twice,
would otherwise raise a second one where the first is being dealt with, and end the chat.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Where Ctrl-C is heard. Not installed, it changes nothing: Python raises KeyboardInterrupt anywhere."""

    def __init__(self) -> None:
        self._hears = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGINT in this block; unless somebody ignores it, as a shell does for what runs in the background."""
        before = signal.getsignal(signal.SIGINT)
        if before is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Raises KeyboardInterrupt at most once, wherever in the block it is; so the block belongs into a ``try``."""
        self._hears = True
        try:
            yield
        finally:
            self._hears = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._hears:
            self._hears = False
            raise KeyboardInterrupt
