"""Who observes an engine: is told of each request that is let in, of each step that counts, of each end; may have a
step run timed, or look into it.

In: what the core did, in the engine's thread, before whoever asked is told. Out: nothing that changes an answer: a step
that is timed, or looked into, has the same bits. Without an observer nothing is made for one.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cutaway.engine.generation import Generation
from cutaway.engine.step_outcome import StepOutcome
from cutaway.engine.steps import Look
from cutaway.scheduler.step import Step

if TYPE_CHECKING:
    from cutaway.engine.llm import LLM


class Observer:
    """Does nothing; override what you need. One that raises hears no more of requests and steps, and a warning says so;
    the requests go on. What it takes is the engine's time.

    Given to an ``LLM`` it is there from the first request to the end. Others come and go between two steps:
    ``core.observers`` is a plain list.
    """

    opens_steps = False
    """Whether it looks into all steps. Then requests compute their whole prompts, and take nothing from the cache."""
    wants_logprobs = False
    """Whether it is to be told each token's log-probability, which otherwise is found for who asked for it; may change
    between two steps.
    """

    def attach(self, llm: "LLM") -> None:
        """The engine that it was given to is there, and no request yet. What it raises, ``LLM`` raises."""

    def admitted(self, generation: Generation) -> None:
        """The request waits for its turn."""

    def looks(self, step: Step) -> Sequence[Look]:
        """Who looks into the step that is to be run; maybe once more, if the step before did not count. One that raises
        there is as an observer that raises.
        """
        return ()

    def wants_clocks(self, step: Step) -> bool:
        """Whether the step shall run timed, with a time stamp after each operation. One that somebody looks into has no
        clocks.
        """
        return False

    def stepped(self, outcome: StepOutcome) -> None:
        """The step counts."""

    def ended(self, generation: Generation, reason: str) -> Mapping[str, Any] | None:
        """The request has ended: "end", or by "abort", "deadline" or "error". Once for each that was admitted, and for
        one that ended before. Out: what whoever asked is given beside the answer's last event.
        """
        return None

    def close(self) -> None:
        """The engine that it was given to has ended."""
