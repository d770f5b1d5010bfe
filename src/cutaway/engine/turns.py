"""Whose turn it is: all requests share one KV pool, which holds one context.

In: a request's ticket. Out: the pool, when nobody else has a claim on it.
"""

import threading


class Turns:
    """Hands the pool from request to request. A ticket is any object that its request keeps for itself."""

    def __init__(self) -> None:
        # Its lock is reentrant: collecting garbage inside ``take`` may give another request's turn back.
        self._changed = threading.Condition()
        self._holder: object | None = None
        self._thread = 0

    def take(self, ticket: object) -> None:
        """Take the pool, or keep it.

        A request holds the pool until ``give_back``, also between its steps. Requests of other threads wait for that.
        A request of the same thread takes the pool over, because its thread can't wait for itself; the pool's cache
        tells what it overwrote.
        """
        thread = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: self._holder in (None, ticket) or self._thread == thread)
            self._holder, self._thread = ticket, thread

    def give_back(self, ticket: object) -> None:
        """End the request's claim, if it has one."""
        with self._changed:
            if self._holder is ticket:
                self._holder = None
                self._changed.notify_all()
