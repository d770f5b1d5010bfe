"""What an engine has computed so far, counted step by step.

In: each step, when it is done. Out: sums, from which rates, waste and means over steps follow.
"""

from dataclasses import dataclass

from cutaway.scheduler.scheduler import Scheduler
from cutaway.scheduler.step import Step


@dataclass
class Totals:
    """Since the engine's start. Sums of positions are over steps: divided by ``steps``, they are means."""

    steps: int = 0
    tokens: int = 0  # rows of the forward that belong to a sequence
    pads: int = 0  # rows that belong to none
    sampled: int = 0  # tokens of answers
    kv_reserved: int = 0  # positions in blocks that somebody held
    kv_used: int = 0  # those of them that held keys and values of a running sequence
    sequences: int = 0  # that had a piece of the step

    def count(self, step: Step, scheduler: Scheduler) -> None:
        """A step is done. If it raises, nothing has been counted."""
        reserved, used = scheduler.kv_positions()
        self.steps += 1
        self.tokens += step.num_tokens - step.num_pads
        self.pads += step.num_pads
        self.sampled += sum(len(each.choices) for each in step.pieces if each.sequence.request.hidden is None)
        self.sequences += len(step.pieces)
        self.kv_reserved += reserved
        self.kv_used += used
