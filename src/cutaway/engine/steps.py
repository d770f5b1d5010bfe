"""What the engine's core needs of a runner; tests put a table of logits here.

In: a batch of tokens, with the pages where their keys and values go. Out: logits, or hidden states.
"""

from typing import Protocol

from cutaway.ops.cpu.arrays import Batch, Floats


class Steps(Protocol):
    """A model that computes steps over a pool of pages."""

    vocab_size: int
    num_steps: int  # so far, by whomever

    def step(self, batch: Batch) -> Floats:
        """The logits [O, V] of the batch's output rows; the next step may overwrite them."""

    def hidden_states(self, batch: Batch) -> Floats:
        """The last hidden states [T, D] of all rows of the batch that was computed last."""

    def copy_page(self, source: int, target: int) -> None:
        """Copy the keys and values of a page to another one."""
