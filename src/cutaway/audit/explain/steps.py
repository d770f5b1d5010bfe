"""The engine's steps while an answer was computed: an observer that keeps what it sees, and may have them timed.

In: an engine. Out: its steps, what the scheduler decided meanwhile and why, and what the answer took.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from cutaway.audit.request_ledger import SharedLedger, StepClocks, StepMeter
from cutaway.engine.core import EngineCore
from cutaway.engine.llm import LLM
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


class WatchedSteps:
    """What was seen; whole once the watching has ended."""

    def __init__(self, meter: StepMeter | None) -> None:
        self.keeper = StepKeeper()
        self.clocks = None if meter is None else StepClocks(meter)
        self.decisions: list[Decision] = []

    @property
    def steps(self) -> list[SeenStep]:
        """All steps, whosever they were."""
        return self.keeper.steps

    def ledger(self, request_id: str) -> SharedLedger | None:
        """What a request took; None where nothing was measured."""
        return None if self.clocks is None else self.clocks.ledger([request_id])


@contextmanager
def watched_steps(llm: LLM, meter: StepMeter | None = None) -> Iterator[WatchedSteps]:
    """Watch the engine's steps within. meter: has them run timed."""
    found = WatchedSteps(meter)
    engine = llm.engine()
    try:
        engine.call(found.keeper.begin).result()
        if found.clocks is not None:
            engine.call(found.clocks.begin).result()
        yield found
    finally:
        found.decisions = engine.call(found.keeper.end).result()
        if found.clocks is not None:
            engine.call(found.clocks.end).result()
