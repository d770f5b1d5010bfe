"""A step as the scheduler plans it: pieces of sequences, and what the engine has to do before and after.

In: a policy's choices. Out: a record from which the engine makes a batch, and by which it reports what was sampled.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from cutaway.memory.block_table import BlockCopy
from cutaway.scheduler.sequence import SequenceState


class StepPiece(NamedTuple):
    """Consecutive tokens of one sequence: ids[start : start + num_tokens], computed into its block table."""

    sequence: SequenceState
    start: int  # position of the first
    num_tokens: int
    choices: tuple[int, ...]  # for which a token is to be sampled from the last row's logits; none within a prompt

    @property
    def num_outputs(self) -> int:
        """How many of the last tokens' logits are needed."""
        if self.sequence.request.hidden is not None:
            return 0
        return self.num_tokens if self.sequence.scores_prompt else int(bool(self.choices))


@dataclass
class Step:
    """One step. Its tokens and pads together are within the token budget."""

    number: int
    pieces: list[StepPiece] = field(default_factory=list)
    copies: list[BlockCopy] = field(default_factory=list)  # to be made in this order, before the forward
    num_pads: int = 0  # rows that a static batch computes for nobody, in the scratch page
    opens: bool = False  # open requests have their turn, if there are any

    @property
    def is_open(self) -> bool:
        """Whether it has pieces of open requests; then it has no others."""
        return bool(self.pieces) and self.pieces[0].sequence.request.is_open

    @property
    def wants_hidden(self) -> bool:
        """Whether hidden states of some piece are needed."""
        return any(piece.sequence.request.hidden is not None for piece in self.pieces)

    @property
    def num_tokens(self) -> int:
        """Rows of the forward."""
        return sum(piece.num_tokens for piece in self.pieces) + self.num_pads


class Sampled(NamedTuple):
    """What the engine reports for one choice of a piece."""

    token: int
    ends: bool = False  # an end token, a stop string: the choice is complete


class Ended(NamedTuple):
    """A choice that is complete."""

    request_id: str
    choice: int
    reason: str  # "stop": the engine said so; "length": it has max_new_tokens
