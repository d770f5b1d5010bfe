"""A request as whoever asked sees it: an iterator of deltas, one for each token of each of its choices.

In: events from the engine's thread. Out: deltas, statistics, and the whole output at any time, as far as it was
iterated.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue

from cutaway.engine.engine_thread import EngineThread
from cutaway.engine.generation import Arrival, Event
from cutaway.engine.outputs import Delta, FinishReason, RequestOutput, Statistics
from cutaway.engine.received import Received


class Stream:
    """One request while it runs. Stop iterating at any time; ``output`` has what came so far.

    It waits for its turn from the first delta on. The engine then goes on while nobody iterates, until the request
    ends or is closed, or the stream is forgotten. It knows the seed in effect. The choices of a request with ``n``
    above 1 come side by side. An error in a step, or Ctrl-C, ends it. Threads may share it: each delta goes to one of
    them, and any may close it.
    """

    def __init__(
        self, usable: Callable[[], EngineThread], received: Received, arrivals: "SimpleQueue[Arrival]"
    ) -> None:
        """usable: gives the engine, or raises if it can't be used any more. arrivals: the sink of the request."""
        self.prompt_token_ids = list(received.generation.asked.prompt_ids)
        self.seed = received.generation.asked.seed
        self._usable, self._received, self._arrivals = usable, received, arrivals
        self._events: list[Event] = []  # arrived and not given out, the next one last
        self._lock = threading.RLock()  # reentrant: a signal handler may iterate, too
        self._engine: EngineThread | None = None
        self._ended = False

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Delta:
        try:
            with self._lock:
                if not self._ended:
                    self._usable()
                if not self._events and not self._ended:
                    self._wait()
                if self._ended:
                    raise StopIteration
                delta = self._received.take(self._events.pop())
                if self._received.finished:
                    self._ended = True
                return delta
        except StopIteration:
            raise
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        """Submit the request, if it wasn't yet, and wait for its next events."""
        if self._engine is None:
            engine = self._usable()
            self._engine = engine
            admission = engine.submit([self._received.generation]).result()
            if admission.error is not None:
                raise admission.error
            if self._ended:  # closed before there was a request to be aborted
                engine.abort(self._received.generation)
                return
        arrival = self._arrivals.get()
        if self._ended:  # closed meanwhile
            return
        if isinstance(arrival, BaseException):
            raise arrival
        self._events = arrival[::-1]

    def run(self) -> RequestOutput:
        """All that is left, and the whole output."""
        for _ in self:
            pass
        return self.output()

    def close(self) -> None:
        """End the request, finished or not."""
        self._ended = True
        if self._engine is not None:
            self._engine.abort(self._received.generation)

    def __del__(self) -> None:
        if getattr(self, "_engine", None) is not None:
            self.close()

    @property
    def request_id(self) -> str:
        """The number of the request."""
        return self._received.generation.request_id

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the last choice has ended; None while it runs or when it was abandoned."""
        return self._received.finish_reason

    def statistics(self) -> Statistics:
        """Counts and times so far."""
        return self._received.statistics()

    def output(self) -> RequestOutput:
        """The request's output so far; one entry for each choice that has begun."""
        return self._received.output()
