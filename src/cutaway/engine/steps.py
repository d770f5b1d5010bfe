"""What the engine's core needs of a runner; tests put a table of logits here.

In: a batch of tokens, with the pages where their keys and values go. Out: logits, or hidden states.
"""

from collections.abc import Callable, Sequence, Set
from typing import Any, Protocol, TypeAlias, runtime_checkable

from cutaway.ops.cpu.arrays import Batch, Floats
from cutaway.ops.cpu.clock import Clocks

Tap: TypeAlias = Callable[[str, int, Any], None]
"""What an open run calls after each operation: its name, its layer (-1 outside of them), the array that it wrote."""


TapName: TypeAlias = tuple[str, int]
"""An operation's name and its layer."""


class Look(Protocol):
    """Who looks into a step: at what some of its operations wrote."""

    @property
    def wanted(self) -> Set[TapName]:
        """The operations; what the model doesn't have is passed over."""

    def see(self, name: str, layer: int, array: Any) -> None:
        """One of them is done. array: what it wrote, all rows of the step: the engine's own memory, to be copied."""


class Steps(Protocol):
    """A model that computes steps over a pool of pages."""

    vocab_size: int
    num_steps: int  # so far, by whomever

    def step(self, batch: Batch) -> Floats:
        """The logits [O, V] of the batch's output rows; the next step may overwrite them."""

    def step_tapped(self, batch: Batch, looks: Sequence[Look]) -> Floats:
        """The same bits; each of the ``looks`` is shown what it wants of the step, as soon as it is there."""

    def residuals(self, batch: Batch) -> Floats:
        """The last residual rows [O, D], before the last norm, of the output rows of the batch that was computed last;
        the next step may overwrite them.
        """

    def hidden_states(self, batch: Batch) -> Floats:
        """The last hidden states [T, D] of all rows of the batch that was computed last."""

    def copy_page(self, source: int, target: int) -> None:
        """Copy the keys and values of a page to another one."""


@runtime_checkable
class TimedSteps(Steps, Protocol):
    """A runner that can run a step timed."""

    def step_timed(self, batch: Batch) -> "Clocks":
        """As ``step``; the members' clocks."""

    def logits_of(self, batch: Batch) -> Floats:
        """The logits of the batch that was computed last."""
