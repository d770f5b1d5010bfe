"""Many requests at once, to their ends. The engine holds back those that its queue has no place for.

In: requests. Out: the same, with all that came of them; meanwhile a listener hears of each that ends.
"""

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeAlias

from cutaway.engine.engine_thread import EngineThread
from cutaway.engine.generation import Arrival, Sink
from cutaway.engine.received import Received

Arrivals: TypeAlias = "SimpleQueue[tuple[int, Arrival]]"


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
    generations = [each.generation for each in requests]
    try:
        engine.call(lambda core: core.hold(generations)).result()
        for _ in requests:
            number, arrival = arrivals.get()
            if isinstance(arrival, BaseException):
                raise arrival
            for event in arrival:
                requests[number].take(event)
            ended()
    except BaseException:
        engine.abort_all(generations)
        raise
