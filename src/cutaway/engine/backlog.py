"""The backlog: requests that wait outside of the scheduler's queue, which has no place for all of them.

In: lists of requests; each call of ``LLM.generate`` has one. Out: the next one, from the lists in turn, so that a call
of thousands keeps no other call from its turn.
"""

from collections import deque
from collections.abc import Iterator, Sequence

from cutaway.engine.generation import Generation


class Backlog:
    """Lists of requests that take turns."""

    def __init__(self) -> None:
        self._lists: deque[deque[Generation]] = deque()

    def __iter__(self) -> Iterator[Generation]:
        """Those that have not ended."""
        return (each for requests in self._lists for each in requests if not each.ended)

    def add(self, requests: Sequence[Generation]) -> None:
        """One call's requests, in their order."""
        self._lists.append(deque(requests))

    def first(self) -> Generation | None:
        """The next one, which stays; None if there is none. Who has ended meanwhile is dropped."""
        while self._lists:
            requests = self._lists[0]
            while requests and requests[0].ended:
                requests.popleft()
            if requests:
                return requests[0]
            self._lists.popleft()
        return None

    def take_overdue(self, now: float) -> list[Generation]:
        """Remove those whose deadline has passed. In a list, it comes no later for who is before others."""
        late = []
        for requests in self._lists:
            while requests and (requests[0].ended or requests[0].is_late(now)):
                late.append(requests.popleft())
        return late

    def take(self) -> Generation:
        """Remove what ``first`` has returned; the next one is of another list, if there is one."""
        taken = self._lists[0].popleft()
        self._lists.rotate(-1)
        return taken
