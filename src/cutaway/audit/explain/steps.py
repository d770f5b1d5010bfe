"""The engine's steps while an answer was computed: a watcher that keeps what it sees.

In: an engine's core. Out: its steps, and what the scheduler decided meanwhile and why.
"""

from cutaway.engine.core import EngineCore
from cutaway.engine.step_watch import SeenStep
from cutaway.scheduler.decisions import Decision
from cutaway.scheduler.step import Step


class StepKeeper:
    """Keeps every step; its methods run on the engine's thread."""

    def __init__(self) -> None:
        self.steps: list[SeenStep] = []
        self._first: Decision | None = None  # the last decision before

    def wants_clocks(self, step: Step) -> bool:
        """See ``StepWatcher``: no."""
        return False

    def saw(self, seen: SeenStep) -> None:
        """See ``StepWatcher``."""
        self.steps.append(seen._replace(clocks=None))

    def begin(self, core: EngineCore) -> None:
        """Watch from now on."""
        self._first = next(reversed(core.scheduler.log.read()), None)
        core.watchers.append(self)

    def end(self, core: EngineCore) -> list[Decision]:
        """Watch no more; the decisions since ``begin``, as far as the log has kept them."""
        if self in core.watchers:
            core.watchers.remove(self)
        decisions = core.scheduler.log.read()
        places = [place for place, each in enumerate(decisions) if each is self._first]
        return decisions[places[-1] + 1 :] if places else decisions
