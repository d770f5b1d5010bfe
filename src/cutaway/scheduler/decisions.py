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
    """A ring buffer. A decision that goes on over steps (a request waits) is written once."""

    def __init__(self, capacity: int) -> None:
        """capacity: decisions that are kept."""
        self._decisions: deque[Decision] = deque(maxlen=capacity)
        self._standing: dict[str, str] = {}  # action → whose decision of this kind goes on

    def write(self, step: int, name: str, action: str, reason: str) -> None:
        """Add a decision; the oldest goes. What went on with this name is over."""
        self._standing = {each: whose for each, whose in self._standing.items() if whose != name}
        self._decisions.append(Decision(step, name, action, reason))

    def write_change(self, step: int, name: str, action: str, reason: str) -> None:
        """Add a decision unless it goes on: nothing else came of this name, nor this action of another. The reason is
        that of its first step, though its numbers change.
        """
        if self._standing.get(action) != name:
            self.write(step, name, action, reason)
            self._standing[action] = name

    def read(self) -> list[Decision]:
        """All that are kept, oldest first."""
        return list(self._decisions)
