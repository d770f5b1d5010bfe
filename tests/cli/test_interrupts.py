"""Where Ctrl-C is heard in a chat: by signals that a process sends itself, which arrive before the next line."""

import signal
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from cutaway.cli import line_editor
from cutaway.cli.interrupts import Interrupts


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    made = Interrupts()
    with made.installed():
        yield made


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_once_in_a_block_and_not_behind_it(interrupts: Interrupts) -> None:
    interrupt()
    for _ in range(2):
        came_to_the_end = False
        try:
            with interrupts.heard():
                try:
                    interrupt()
                finally:
                    interrupt()
                    came_to_the_end = True
            pytest.fail("not heard")
        except KeyboardInterrupt:
            interrupt()
        assert came_to_the_end
        interrupt()
    with interrupts.heard():
        pass
    interrupt()


def test_not_installed_it_changes_nothing() -> None:
    for block in (Interrupts().heard(), nullcontext()):
        with pytest.raises(KeyboardInterrupt), block:
            interrupt()
    with Interrupts().installed():
        interrupt()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_ignores_the_signal_goes_on_doing_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupts = Interrupts()
        with interrupts.installed(), interrupts.heard():
            interrupt()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_second_one_while_input_leaves_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython then calls the handler with the first one's exception set, and makes SystemError of the pair."""

    def leaves(prompt: str) -> str:
        raise SystemError("a handler returned a result with an exception set") from KeyboardInterrupt()

    def fails(prompt: str) -> str:
        raise SystemError("another one")

    monkeypatch.setattr("builtins.input", leaves)
    with pytest.raises(KeyboardInterrupt):
        line_editor._read_edited("")
    monkeypatch.setattr("builtins.input", fails)
    with pytest.raises(SystemError, match="another one"):
        line_editor._read_edited("")
