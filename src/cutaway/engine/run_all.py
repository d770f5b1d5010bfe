"""Many requests at once, to their ends: as many wait in the engine's queue as it has places for.

In: requests. Out: the same, with all that came of them; meanwhile a listener hears of each that ends.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias

from cutaway.engine.engine_thread import EngineThread
from cutaway.engine.generation import Arrival, Sink
from cutaway.engine.received import Received
from cutaway.errors import QueueFullError

Arrivals: TypeAlias = "SimpleQueue[tuple[int, Arrival]]"

AT_ONCE: Final = 1024  # requests that are submitted together
PATIENCE: Final = 0.05  # seconds between two looks at a full queue


def sink_of(arrivals: Arrivals, number: int) -> Sink:
    """The sink of the request of this number."""

    def deliver(arrival: Arrival) -> None:
        arrivals.put((number, arrival))

    return deliver


def run_all(
    engine: EngineThread, requests: Sequence[Received], arrivals: Arrivals, ended: Callable[[], object]
) -> None:
    """Compute the requests; each hands all its events at once to ``arrivals``, with its place in ``requests``.

    If one fails, or this thread is interrupted, the others are aborted.
    """
    later, running = deque(requests), 0
    is_full, next_look = False, 0.0  # the engine's queue, when it was last looked at
    try:
        while later or running:
            if later and not is_full:
                admission = engine.submit([each.generation for each in islice(later, AT_ONCE)]).result()
                running += admission.admitted
                for _ in range(admission.admitted):
                    later.popleft()
                is_full, next_look = isinstance(admission.error, QueueFullError), time.monotonic() + PATIENCE
                if admission.error is not None and not is_full:
                    raise admission.error
                continue
            try:
                number, arrival = arrivals.get(timeout=max(next_look - time.monotonic(), 0) if later else None)
            except Empty:
                is_full = engine.call(lambda core: core.scheduler.num_free_places).result() == 0
                next_look = time.monotonic() + PATIENCE
                continue
            if isinstance(arrival, BaseException):
                raise arrival
            for event in arrival:
                requests[number].take(event)
            running -= 1
            ended()
    except BaseException:
        for request in requests:
            engine.abort(request.generation)
        raise
