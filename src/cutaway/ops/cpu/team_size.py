"""How many members of a team take part in the next step: all, unless another program has the processor's cores.

In: for each step what it took, and how much of that the members slept while they waited for a late one. Out: the size
for the next step. Bits don't depend on it.

A step of n members that lost the time s to waiting would have taken its time less s; with a member fewer, at most
n / (n - 1) of that. So a member goes as soon as s is more than 1 / n of what recent steps took. What a smaller team
takes doesn't tell whether the noise is over, so the member is tried again after a while, which doubles with each trial
that fails.
"""

import math
import time
from collections.abc import Callable
from typing import Any, Final

from cutaway.ops.cpu.clock import read_clocks, seconds_per_cycle
from cutaway.ops.cpu.threads import ThreadTeam

FADE: Final = 0.75  # the weight of earlier steps in "recent", for each step since
FIRST_HOLD: Final = 0.05  # seconds
LONGEST_HOLD: Final = 2.0


class TeamSize:
    """``next``: the members of the next step, 1 … ``whole``."""

    def __init__(self, whole: int) -> None:
        self.whole = self.next = whole
        self._took = self._lost = 0.0  # seconds of recent steps of this size
        self._hold = FIRST_HOLD
        self._remaining = math.inf  # seconds of steps until a member is tried again, or has stood its trial
        self._on_trial = False

    def after(self, took: float, lost: float) -> None:
        """A step of ``next`` members took so many seconds, and lost so many of them."""
        self._took = FADE * self._took + took
        self._lost = FADE * self._lost + lost
        self._remaining -= took
        if self.next > 1 and self._lost * self.next > self._took:
            self._change(self.next - 1, on_trial=False)
            self._hold = min(2 * self._hold, LONGEST_HOLD)
        elif self._remaining <= 0:
            if self._on_trial:
                self._hold = FIRST_HOLD
            self._change(min(self.next + 1, self.whole), on_trial=True)

    def _change(self, size: int, on_trial: bool) -> None:
        self.next, self._on_trial = size, on_trial
        self._took = self._lost = 0.0
        self._remaining = self._hold


class SizedTeam:
    """A team whose steps are computed by as many of its members as are of use."""

    def __init__(self, team: ThreadTeam) -> None:
        self._team = team
        self._size = TeamSize(team.size)
        self._made = read_clocks()

    def run(self, function: Callable[..., None], *arguments: Any) -> None:
        """A step, as ``ThreadTeam.run``."""
        team = self._team
        team.use(self._size.next)
        slept, begin = team.cycles_slept(), time.perf_counter()
        team.run(function, *arguments)
        took, cycles = time.perf_counter() - begin, team.cycles_slept() - slept
        # Where one member is late, all others wait.
        lost = cycles * seconds_per_cycle(self._made, read_clocks()) / (team.active - 1) if cycles else 0.0
        self._size.after(took, lost)
