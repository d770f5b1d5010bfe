"""Who may watch an engine: told of each request that is let in, of each step with what it brought, of each end.

In: what the core did, in the engine's thread, before whoever asked is told. Out: nothing that changes an answer; where
it looks into a step, that has the same bits. Without an observer nothing of this is computed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from cutaway.engine.generation import Generation
from cutaway.engine.outputs import Delta
from cutaway.engine.results import PieceResult
from cutaway.engine.steps import Look
from cutaway.ops.cpu.arrays import Floats
from cutaway.sampling.sampler import SampleResult
from cutaway.scheduler.step import Step, StepPiece

if TYPE_CHECKING:
    from cutaway.engine.llm import LLM


class Observed(NamedTuple):
    """What a step has brought to one piece's request. ``piece.sequence`` is as it was before the step."""

    piece: StepPiece
    generation: Generation
    scores: dict[int, SampleResult]  # of the prompt's tokens, by position
    samples: list[SampleResult]  # one for each token that was taken, in the order of ``piece.choices``
    deltas: list[Delta]  # and what each is to whoever asked
    residual: Floats | None  # [D], of the row whose logits the tokens were sampled from; the next step overwrites it


class Observer(Protocol):
    """None of these may raise; they are called between steps, and what they take is the engine's time."""

    opens_steps: bool
    """Whether steps run open for it; then requests compute their whole prompts, and none of it comes from the cache."""

    def attach(self, llm: "LLM") -> None:
        """The engine is there, and no request yet. The one method that may raise: then there is no engine."""

    def admitted(self, generation: Generation) -> None:
        """The request waits for its turn."""

    def looks(self, step: Step) -> list[Look]:
        """Who looks into the step; with nobody, it runs closed."""

    def stepped(self, step: Step, observed: Sequence[Observed]) -> None:
        """The step counts."""

    def ended(self, generation: Generation, reason: str) -> None:
        """The request has ended: "end", or by "abort", "deadline" or "error". Called once or more."""

    def summary(self, generation: Generation) -> dict[str, Any]:
        """What is to be given to whoever asked, beside the answer; after ``ended``."""

    def close(self) -> None:
        """The engine has ended."""


def observed(results: Sequence[PieceResult], deltas: Sequence[list[Delta]], residuals: Floats) -> list[Observed]:
    """For each piece of a step; deltas: of each piece; residuals: [O, D], in the order of the rows of logits."""
    found, end = [], 0
    for (piece, generation, asking, samples), own in zip(results, deltas, strict=True):
        outputs = piece.num_outputs
        end += outputs
        residual = residuals[end - 1] if outputs and piece.choices else None
        taken = cast(
            "list[SampleResult]", samples[: len(own)]
        )  # an error brings no delta, nor does what comes behind it
        found.append(Observed(piece, generation, asking.scores, taken, own, residual))
    return found
