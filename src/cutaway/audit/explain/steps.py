"""The engine's steps while an answer was computed: an observer that keeps what it sees.

In: an engine's core. Out: its steps, and what the scheduler decided meanwhile and why.
"""

from cutaway.engine.core import EngineCore
from cutaway.engine.observer import Observer
from cutaway.engine.step_outcome import SeenStep, StepOutcome
from cutaway.scheduler.decisions import Decision


class StepKeeper(Observer):
    """Keeps every step; its methods run on the engine's thread."""

    def __init__(self) -> None:
        self.steps: list[SeenStep] = []
        self._first: Decision | None = None  # the last decision before

    def stepped(self, outcome: StepOutcome) -> None:
        """Without the clocks, which are the ledger's."""
        self.steps.append(outcome.seen._replace(clocks=None))

    def begin(self, core: EngineCore) -> None:
        """From now on."""
        self._first = next(reversed(core.scheduler.log.read()), None)
        core.observers.append(self)

    def end(self, core: EngineCore) -> list[Decision]:
        """No more; the decisions since ``begin``, as far as the log has kept them."""
        if self in core.observers:
            core.observers.remove(self)
        decisions = core.scheduler.log.read()
        places = [place for place, each in enumerate(decisions) if each is self._first]
        return decisions[places[-1] + 1 :] if places else decisions
