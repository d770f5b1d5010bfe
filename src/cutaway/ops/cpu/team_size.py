"""How many members of a team take part in a step: all, unless another program has some of the processor's cores.

In: for each step its kind, what it took, and how much of that its members slept in barriers, waiting for a late one.
Out: the size for the next step. Bits don't depend on it.

Another size is tried for a few steps and kept if they were faster than such steps had been. A step of n members that
lost the time s to waiting would have taken its time less s, with a member fewer at most n / (n - 1) of that: so one
fewer is tried where s is more than 1 / n of what steps took lately. Uneven work makes members wait, too, and waits no
less with fewer of them: then the trial fails. A member more is tried from time to time, since a smaller team doesn't
notice that the noise is over. Each trial that fails doubles the time to the next of its direction.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from cutaway.ops.cpu.clock import read_clocks, seconds_per_cycle
from cutaway.ops.cpu.threads import ThreadTeam

FADE: Final = 0.5  # the weight of earlier steps in "lately", for each step since
TRIAL_STEPS: Final = 4
HOPELESS: Final = 2.0  # times what such a step had taken: one is enough to end a trial
UNJUDGED: Final = 64  # steps of kinds that were not seen before the trial, after which it is given up
FIRST_HOLD: Final = 0.05  # seconds between two trials of a direction, where the last one succeeded
LONGEST_HOLD: Final = 0.5


@dataclass
class _Trial:
    """A size that is being tried."""

    size: int  # before
    usual: dict[int, float]  # seconds of a step of each kind, before
    ratios: float = 0.0  # sum, over its steps, of what they took to what such steps had taken
    judged: int = 0
    unjudged: int = 0


@dataclass
class _Pace:
    """When a direction may be tried again."""

    hold: float = FIRST_HOLD
    next_trial: float = 0.0  # on the clock of steps

    def ended(self, now: float, success: bool) -> None:
        self.hold = FIRST_HOLD if success else min(2 * self.hold, LONGEST_HOLD)
        self.next_trial = now + self.hold


@dataclass
class TeamSize:
    """``next``: the members of the next step, 1 … ``whole``."""

    whole: int
    next: int = field(init=False)

    def __post_init__(self) -> None:
        self.next = self.whole
        self._now = 0.0  # seconds of steps so far
        self._usual: dict[int, float] = {}  # seconds of a step of each kind, lately, with ``next`` members
        self._took = self._lost = 0.0  # lately
        self._trial: _Trial | None = None
        self._fewer, self._more = _Pace(), _Pace()

    def after(self, kind: int, took: float, lost: float) -> None:
        """A step of ``next`` members took so many seconds, and lost so many of them. Steps of a kind do equal work."""
        self._now += took
        if self._trial is not None:
            self._judge(self._trial, kind, took)
            return
        self._usual[kind] = took + FADE * (self._usual.get(kind, took) - took)
        self._took = FADE * self._took + took
        self._lost = FADE * self._lost + lost
        if self.next > 1 and self._lost * self.next > self._took and self._now >= self._fewer.next_trial:
            self._try(self.next - 1)
        elif self.next < self.whole and self._now >= self._more.next_trial:
            self._try(self.next + 1)

    def _try(self, size: int) -> None:
        self._trial = _Trial(self.next, self._usual)
        self._change(size, {})

    def _change(self, size: int, usual: dict[int, float]) -> None:
        self.next, self._usual = size, usual
        self._took = self._lost = 0.0

    def _judge(self, trial: _Trial, kind: int, took: float) -> None:
        ratio = took / trial.usual[kind] if kind in trial.usual else 0.0
        if ratio:
            trial.ratios += ratio
            trial.judged += 1
        else:
            trial.unjudged += 1
        if ratio > HOPELESS or trial.ratios >= TRIAL_STEPS or trial.unjudged == UNJUDGED:
            self._end(trial, success=False)
        elif trial.judged == TRIAL_STEPS:
            self._end(trial, success=True)

    def _end(self, trial: _Trial, success: bool) -> None:
        fewer = self.next < trial.size
        (self._fewer if fewer else self._more).ended(self._now, success)
        if success and fewer:
            self._more.next_trial = self._now + self._more.hold
        if not success:
            self._change(trial.size, trial.usual)
        self._trial = None


class SizedTeam:
    """A team whose steps are computed by as many of its members as are of use."""

    def __init__(self, team: ThreadTeam) -> None:
        self.size = TeamSize(team.size)
        self._team = team
        self._made = read_clocks()
        self._lock = threading.Lock()

    def run(self, kind: int, function: Callable[..., None], *arguments: Any) -> None:
        """A step, as ``ThreadTeam.run``; steps of a kind do equal work."""
        members, begin = self.size.next, time.perf_counter()
        cycles = self._team.run(function, *arguments, active=members)
        took = time.perf_counter() - begin
        # Where one member is late, all others wait.
        lost = cycles * seconds_per_cycle(self._made, read_clocks()) / (members - 1) if cycles else 0.0
        with self._lock:
            if members == self.size.next:  # no other caller's step has changed it meanwhile
                self.size.after(kind, took, lost)
