"""A team's threads, seen from Python: ordinary threads that each call the same compiled function and meet in its
barriers.

In: how many threads, then for each step a function and its arguments. Out: the step, done. Between steps the threads
wait without using the processor. Each member runs in the floating-point environment that the contract of same bits
names, and restores the caller's.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from cutaway.errors import InvalidRequestError, shown
from cutaway.ops.cpu.team import Team, shared_block, slept
from cutaway.ops.kernel_cache import jit
from cutaway.ops.simd import set_float_environment as _set
from cutaway.ops.simd.registers import DEFAULT_FLOAT_ENVIRONMENT

MOST_THREADS = 256
PENDING: Final = "pending"  # the outcome of a member that is at work
DONE: Final = "done"


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
    """``size`` threads: the caller's own is member 0, the others are kept until ``close``. ``active`` take part.

    Raises InvalidRequestError for a size outside 1 … 256.
    """

    def __init__(self, size: int) -> None:
        self._inboxes: list[queue.SimpleQueue[Any]] = []  # first: close() reads it even after a refusal
        check_threads(size)
        self.size = self.active = size
        self._shared = shared_block(size)
        self._members = self._records()
        self._lock = threading.Lock()  # one step at a time, whoever calls
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
            function, member, arguments, outcomes = work
            try:
                with float_environment():
                    function(member, *arguments)
            except BaseException as error:
                outcomes[member.rank - 1] = error
            else:
                outcomes[member.rank - 1] = DONE
            done.put(None)
            del work, function, member, arguments, outcomes

    def _records(self) -> list[Team]:
        return [Team(rank, self.active, int(self._shared.ctypes.data), 0) for rank in range(self.active)]

    def use(self, active: int) -> None:
        """From the next run on, so many of its members take part: 1 … ``size``, the caller's thread among them."""
        assert 1 <= active <= self.size
        with self._lock:
            if active != self.active:
                self.active = active
                self._members = self._records()

    def cycles_slept(self) -> int:
        """The processor's cycles that members have slept in barriers, since the team was made (``ops.cpu.team``)."""
        return slept(self._shared)

    def members(self, clocks: "np.ndarray[Any, np.dtype[np.int64]] | None" = None) -> list[Team]:
        """The records of those that take part. clocks: [active, …] int64, a row of stamps for each (timed mode)."""
        if clocks is None:
            return self._members
        return [member._replace(clock=int(clocks[member.rank].ctypes.data)) for member in self._members]

    def run(
        self,
        function: Callable[..., None],
        *arguments: Any,
        clocks: "np.ndarray[Any, np.dtype[np.int64]] | None" = None,
    ) -> None:
        """Every member calls ``function(member, *arguments)``; returns when all have.

        ``function`` is compiled code that has run before, so that no member can fail while the others wait in a
        barrier. An interruption (Ctrl-C) is raised after the step: a member that didn't come would leave the others in
        a barrier, and a caller who left early would leave them writing into memory that is given away.
        """
        with self._lock:
            own, *others = self.members(clocks)
            outcomes: list[object] = [PENDING] * len(others)
            begun: list[None] = []
            # One call into C does all of this. Python's signal handlers run between bytecodes only, so either
            # every member gets its work and this one does its own, or none does.
            whole_step = map(
                partial.__call__,
                [
                    partial(begun.append, None),
                    *(
                        partial(inbox.put, (function, member, arguments, outcomes))
                        for inbox, member in zip(self._inboxes[: len(others)], others, strict=True)
                    ),
                    partial(function, own, *arguments),
                ],
            )
            with float_environment():
                try:
                    deque(whole_step, maxlen=0)
                finally:
                    if begun:
                        self._wait_for(outcomes)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome

    def _wait_for(self, outcomes: list[object]) -> None:
        """Until no outcome is pending; an interruption meanwhile is raised then.

        ``_done`` only wakes: what an interruption lost of it, or left in it, does no harm.
        """
        interruption: BaseException | None = None
        while True:
            try:
                while PENDING in outcomes:
                    self._done.get()
                break
            except BaseException as error:
                interruption = error
        if interruption is not None:
            raise interruption

    def close(self) -> None:
        """End the threads. The team can't be used after it."""
        for inbox in self._inboxes:
            inbox.put(None)
        self._inboxes = []

    def __del__(self) -> None:
        self.close()
