"""The engine's thread: the core's loop. Requests come from any thread, and their events go to their sinks.

In: requests, aborts, the end. Out: steps, as long as there is work; waiting without using the processor where there is
none. A signal (Ctrl-C) never interrupts a step: Python's handlers run in the main thread, which only waits.
"""

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple, TypeVar

from cutaway.engine.core import EngineCore
from cutaway.engine.generation import Generation
from cutaway.errors import CutawayError

REST: Final = 0.05  # seconds without work or command, then it checks itself: so hardly anybody waits for the check
Command = Callable[[], object]
Result = TypeVar("Result")


class Admission(NamedTuple):
    """How many of the given requests were let in, from the first on, and what the next one met."""

    admitted: int
    error: CutawayError | None


class EngineThread:
    """Commands are carried out between two steps, in their order."""

    def __init__(self, core: EngineCore, closed: str) -> None:
        """closed: the message for requests that are there when it is closed, or come later."""
        self._core: EngineCore | None = core
        self._closed = closed
        self._commands: SimpleQueue[Command | None] = SimpleQueue()
        # So that no command comes after the last; reentrant: a signal handler may call this, too.
        self._closing = threading.RLock()
        self._process = os.getpid()
        # The thread knows the core and the commands, not this object: forgetting it ends the thread.
        self._thread = threading.Thread(target=_serve, args=(core, self._commands), name="cutaway-engine", daemon=True)
        self._thread.start()
        weakref.finalize(self, _end, self._commands, self._thread, self._process)

    def submit(self, generations: Sequence[Generation]) -> "Future[Admission]":
        """Let the requests wait for their turn, in this order, until one is refused."""
        return self.call(lambda core: _admit(core, generations))

    def call(self, command: Callable[[EngineCore], Result]) -> "Future[Result]":
        """Carry a command out between two steps; the future has what it returns, or raises what it raised.

        Raises CutawayError in the engine's own thread, which would wait for itself for ever.
        """
        if threading.current_thread() is self._thread:
            raise CutawayError(
                "the engine was asked for something by what it calls itself (an observer, a look into a step, who "
                "takes a request's events), and would wait for itself for ever. Ask from another thread."
            )
        future = Future[Result]()

        def carry_out(core: EngineCore) -> None:
            if not future.set_running_or_notify_cancel():  # who asked has left
                return
            try:
                result = command(core)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._closing:
            core = self._core
            if core is not None:
                self._commands.put(partial(carry_out, core))
            if self._core is None:  # also where a signal handler has closed it meanwhile: nobody would carry it out
                raise CutawayError(self._closed)
        return future

    def abort(self, generation: Generation) -> None:
        """End the request before the next step; nothing happens if it has ended."""
        if not generation.ended:
            self.abort_all([generation])

    def abort_all(self, generations: Sequence[Generation]) -> None:
        """End the requests before the next step, by one command: a signal in the middle leaves none of them behind."""
        core = self._core
        if core is not None and os.getpid() == self._process:
            self._commands.put(partial(_abort, core, generations))

    def close(self) -> None:
        """End the requests with an error, then the thread. Closing again, or after a fork, does nothing."""
        with self._closing:
            core, self._core = self._core, None
            if core is None or os.getpid() != self._process:
                return
            self._commands.put(partial(core.fail, CutawayError(self._closed)))
        _end(self._commands, self._thread, self._process)


def _end(commands: "SimpleQueue[Command | None]", thread: threading.Thread, process: int) -> None:
    """Let the thread end, and wait for it: native code must not run on while memory is given back."""
    if os.getpid() != process:
        return
    commands.put(None)
    if thread is not threading.current_thread():
        thread.join()


def _admit(core: EngineCore, generations: Sequence[Generation]) -> Admission:
    admitted = 0
    try:
        for generation in generations:
            core.submit(generation)
            admitted += 1
    except CutawayError as error:
        return Admission(admitted, error)
    return Admission(admitted, None)


def _abort(core: EngineCore, generations: Sequence[Generation]) -> None:
    for generation in generations:
        core.abort(generation)


def _serve(core: EngineCore, commands: "SimpleQueue[Command | None]") -> None:
    """The loop: what was commanded, then a step. Whatever goes wrong reaches all requests, and the loop goes on."""
    checked = True  # since the last step
    while True:
        try:
            try:
                command = commands.get(block=not core.has_work, timeout=None if checked else REST)
            except Empty:
                checked = not core.has_work
                if core.has_work:
                    core.step()
                else:
                    core.rest()
                continue
            if command is None:
                return
            command()
        except BaseException as error:
            with suppress(BaseException):  # whom it has not reached is there still, and so is the loop
                core.fail(error)
        finally:
            command = None  # it holds a request
