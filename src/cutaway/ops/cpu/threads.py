"""A team's threads, seen from Python: ordinary threads that each call the same compiled function and meet in its
barriers.

In: how many threads, then for each step a function and its arguments. Out: the step, done. Between steps the threads
wait without using the processor. Each member runs in the floating-point environment that the contract of same bits
names, and restores the caller's.
"""

import os
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from cutaway.errors import CutawayError, InvalidRequestError, shown
from cutaway.ops.cpu.team import Team, shared_block, slept
from cutaway.ops.kernel_cache import jit, ready_call
from cutaway.ops.simd import set_float_environment as _set
from cutaway.ops.simd.registers import DEFAULT_FLOAT_ENVIRONMENT

MOST_THREADS = 256
_CALL: Callable[[Any], Any] = partial.__call__  # of a partial; in C
PENDING: Final = object()  # the outcome of a member that is at work


@jit
def _set_float_environment(state: int) -> int:
    return _set(state)


class float_environment:  # noqa: N801  (a context manager, used like a function)
    """``with float_environment(): …``: round to nearest even, denormals kept, in this thread; then the caller's state
    again.
    """

    def __enter__(self) -> None:
        self._state = _set_float_environment(DEFAULT_FLOAT_ENVIRONMENT)

    def __exit__(self, *exception: object) -> None:
        _set_float_environment(self._state)


def check_threads(size: int) -> None:
    """Raises InvalidRequestError for a team's size outside 1 … MOST_THREADS."""
    if not 1 <= size <= MOST_THREADS:
        raise InvalidRequestError(
            f"threads is {shown(size)}; it must be 1 to {MOST_THREADS}. Use the number of cores.", "threads"
        )


class ThreadTeam:
    """``size`` threads: the caller's own is member 0, the others are kept until ``close``.

    Raises InvalidRequestError for a size outside 1 … 256.
    """

    def __init__(self, size: int) -> None:
        self._inboxes: list[queue.SimpleQueue[Any]] = []  # first: close() reads it even after a refusal
        check_threads(size)
        self.size = size
        self._process = os.getpid()
        self._shared = shared_block(size)
        self._members = self._records(size)
        # One step at a time, whoever calls. Whose thread has the turn while a step is being computed is within it.
        self._turn, self._step = threading.RLock(), threading.Lock()
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        for rank in range(1, size):
            inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
            thread = threading.Thread(target=self._serve, args=(inbox, self._done), name=f"cutaway-{rank}", daemon=True)
            thread.start()
            self._inboxes.append(inbox)

    @staticmethod
    def _serve(inbox: "queue.SimpleQueue[Any]", done: "queue.SimpleQueue[None]") -> None:
        # A static method: a thread that held the team would keep it from ever being collected.
        while (work := inbox.get()) is not None:
            place, call, outcomes = work
            try:
                with float_environment():
                    outcomes[place] = call()
            except BaseException as error:
                outcomes[place] = error
            done.put(None)
            del work, call, outcomes

    def _records(self, active: int) -> list[Team]:
        return [Team(rank, active, int(self._shared.ctypes.data), 0) for rank in range(active)]

    def members(self, notes: "np.ndarray[Any, np.dtype[np.int64]] | None" = None) -> list[Team]:
        """The members' records. notes: [size, …] int64, a row for each, which the taps of its step know how to use."""
        if notes is None:
            return self._members
        return [member._replace(notes=int(notes[member.rank].ctypes.data)) for member in self._members]

    def run(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        notes: "np.ndarray[Any, np.dtype[np.int64]] | None" = None,
        active: int | None = None,
    ) -> int:
        """Every member calls ``function(member, *arguments)``; returns when all have. active: so many of them, from the
        first on; default, all. Returns the processor's cycles that they slept in barriers (``ops.cpu.team``).

        ``function`` is compiled code, so that no member can fail while the others wait in a barrier. An interruption
        (Ctrl-C) is raised after the step: a member that didn't come would leave the others in a barrier, and a caller
        who left early would leave them writing into memory that is given away.

        Raises CutawayError within a step of the same team, and after a fork.
        """
        self._check_process()
        members = self.members(notes) if active in (None, self.size) else self._records(active or 0)
        # All that may fail or be interrupted comes before anybody has begun.
        calls = [ready_call(function, member, *arguments) for member in members]
        with self._turn, self._free_step():
            before = slept(self._shared)
            outcomes: list[Any] = [PENDING] * len(members)
            begun: list[None] = []
            # One call into C does all of this, from queues to compiled code. Python's signal handlers run between
            # bytecodes only, so either every member gets its work and this one does its own, or none does.
            parts: list[Callable[[], Any]] = [
                partial(begun.append, None),
                *(
                    partial(self._inboxes[rank - 1].put, (rank, calls[rank].call, outcomes))
                    for rank in range(1, len(members))
                ),
                calls[0].call,
            ]
            whole_step = map(_CALL, parts)
            with float_environment():
                own: list[Any] = []
                try:
                    own.extend(whole_step)
                finally:
                    if begun:
                        self._wait_for(outcomes, len(members))
            outcomes[0] = own[-1]
            for ready, outcome in zip(calls, outcomes, strict=True):
                if isinstance(outcome, BaseException):
                    raise outcome
                ready.finish(outcome)
            return slept(self._shared) - before

    def _wait_for(self, outcomes: list[Any], count: int) -> None:
        """Until no outcome of the others is pending; an interruption meanwhile is raised then.

        ``_done`` only wakes: what an interruption lost of it, or left in it, does no harm.
        """
        interruption: BaseException | None = None
        while True:
            try:
                while any(outcomes[rank] is PENDING for rank in range(1, count)):
                    self._done.get()
                break
            except BaseException as error:
                interruption = error
        if interruption is not None:
            raise interruption

    def _free_step(self) -> threading.Lock:
        """To be held while a step is computed. Whoever calls has the turn."""
        if self._step.locked():
            raise CutawayError(
                "a step was asked for within a step of the same threads, which would wait for each other for ever. "
                "Copy what you are shown, and compute when the step is done."
            )
        return self._step

    def check_not_within(self) -> None:
        """Raises CutawayError where a step of the team has called into Python, and this is called from there; and after
        a fork. Waits for the step of another thread.
        """
        self._check_process()
        with self._turn:
            self._free_step()

    def _check_process(self) -> None:
        if self.size > 1 and os.getpid() != self._process:
            raise CutawayError(
                f"this team's threads are those of process {self._process}, and a fork takes none along. Load the "
                "model in the new process, or start processes with the method 'spawn'."
            )

    def close(self) -> None:
        """End the threads. The team can't be used after it."""
        for inbox in self._inboxes:
            inbox.put(None)
        self._inboxes = []

    def __del__(self) -> None:
        self.close()
