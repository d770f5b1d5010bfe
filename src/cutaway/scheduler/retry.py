"""An estimate of when a full waiting queue will have places: from how fast they have become free lately.

In: readings of the clock with the number of choices that left the queue. Out: seconds.
"""

from typing import Final

WEIGHT: Final = 1 / 8  # of the newest interval in the moving average


class RetryEstimate:
    """An exponential moving average of the seconds between two departures from the queue."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._interval: float | None = None

    def observe(self, now: float, departures: int) -> None:
        """So many choices have left the queue since the last call."""
        if departures == 0:
            return
        if self._last is not None:
            interval = (now - self._last) / departures
            old = interval if self._interval is None else self._interval
            self._interval = old + WEIGHT * (interval - old)
        self._last = now

    def seconds(self, places: int) -> float | None:
        """Until so many places are free; None before two departures were seen."""
        return None if self._interval is None else places * self._interval
