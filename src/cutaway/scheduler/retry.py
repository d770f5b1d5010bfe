"""An estimate of when a full waiting queue will have places: from how fast they have become free lately.

In: readings of the clock, once a step, with the number of choices that left the queue for the first time and of those
that wait. Out: seconds.
"""

from typing import Final

WEIGHT: Final = 1 / 8  # of the newest interval in the moving average


class RetryEstimate:
    """An exponential moving average of the seconds between two departures from the queue, while somebody waits. How
    long nobody asked says nothing about how fast the engine is.
    """

    def __init__(self) -> None:
        self._since: float | None = None  # when the interval began that is not over; None while nobody waits
        self._so_far = 0.0  # its seconds
        self._interval: float | None = None

    def restart(self) -> None:
        """The queue was empty; what passed until now is no interval."""
        self._since, self._so_far = None, 0.0

    def observe(self, now: float, departures: int, waiting: int) -> None:
        """A step is planned: so many choices have left the queue since the last call, and so many are in it."""
        if self._since is not None and departures:
            interval = (now - self._since) / departures
            old = interval if self._interval is None else self._interval
            self._interval = old + WEIGHT * (interval - old)
        if waiting == 0:
            self.restart()
            return
        if self._since is None or departures:
            self._since = now
        self._so_far = now - self._since

    def seconds(self, places: int) -> float | None:
        """Until so many places are free. Before a first interval is over, it counts as long as it has lasted; None if
        no time has passed with somebody waiting.
        """
        interval = self._interval if self._interval is not None else self._so_far or None
        return None if interval is None else places * interval
