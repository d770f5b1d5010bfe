"""The decision log: what the scheduler decided, about whom and why, the last so many.

In: an action and its reason, with the numbers. Out: records for the audit, oldest first.
"""

from collections import deque
from typing import NamedTuple


class Decision(NamedTuple):
    """One line of the log."""

    step: int
    name: str  # the request, with its choice where there are several
    action: str  # "admitted", "waits", "pauses", "preempted", "refused", "ended"
    reason: str

    def __str__(self) -> str:
        return f"step {self.step}: {self.name} {self.action}: {self.reason}"


class DecisionLog:
    """A ring buffer. A decision that is the same in every step (a request that waits) is written once."""

    def __init__(self, capacity: int) -> None:
        """capacity: decisions that are kept."""
        self._decisions: deque[Decision] = deque(maxlen=capacity)
        self._standing: dict[str, tuple[str, str]] = {}  # action → name and reason, last written

    def write(self, step: int, name: str, action: str, reason: str) -> None:
        """Add a decision; the oldest goes."""
        self._decisions.append(Decision(step, name, action, reason))

    def write_change(self, step: int, name: str, action: str, reason: str) -> None:
        """Add a decision unless it is the last one of this action, repeated."""
        if self._standing.get(action) != (name, reason):
            self._standing[action] = (name, reason)
            self.write(step, name, action, reason)

    def read(self) -> list[Decision]:
        """All that are kept, oldest first."""
        return list(self._decisions)
