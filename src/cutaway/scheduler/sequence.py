"""The state of a sequence: the ids so far, how many are computed, where its keys and values lie.

A request has one sequence for each of its choices. While they have the same ids, one sequence stands for several.

In: a request, its rank, the block table that it was given. Out: what is to be computed next, and where that lies.
"""

from collections.abc import MutableSequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from cutaway.memory.block_manager import NOTHING_CACHED, CachedPrefix
from cutaway.memory.block_table import BlockTable
from cutaway.memory.hash_chain import HashChain
from cutaway.scheduler.request import Request


class State(Enum):
    """Where a sequence is."""

    WAITING = "waiting"  # new, or preempted; it has no block
    RUNNING = "running"  # it has a block table
    ENDED = "ended"


class Rank(NamedTuple):
    """The place in the one order of all sequences; the smaller goes first. It never changes, so ageing costs nothing.

    ``due`` is the step of submission plus ``ageing`` steps for each priority below the best: after so many steps, a
    request goes before all newer ones of the best priority.
    """

    due: int
    serial: int  # of the request, in the order of submission
    choice: int


@dataclass(eq=False)
class SequenceState:
    """One sequence.

    Invariant between steps: keys and values of positions 0 … num_computed - 1 are in the table's blocks, computed from
    ``ids``, and num_computed < len(ids), or the sequence has ended. A decode is the case of one id that is not computed
    yet, and a sequence that was preempted is a prompt with its new tokens at the end: there is no other difference.
    """

    request: Request
    choices: tuple[int, ...]  # for which it stands; more than one until the prompt is computed, if there are rows
    rank: Rank
    ids: MutableSequence[int]
    chain: HashChain
    num_computed: int = 0
    state: State = State.WAITING
    was_preempted: bool = False  # it has been let in before
    table: BlockTable | None = field(default=None, repr=False)
    prefix: CachedPrefix = field(default=NOTHING_CACHED, repr=False)  # as it was found last, while it waits

    @property
    def blocks(self) -> BlockTable:
        """The block table of a running sequence."""
        if self.table is None:
            raise ValueError(f"{self.name} is {self.state.value}: it has no block table")
        return self.table

    @property
    def remaining(self) -> int:
        """Tokens to compute until the next logits are there."""
        return len(self.ids) - self.num_computed

    @property
    def scores_prompt(self) -> bool:
        """Whether the logits of each token are wanted: while the prompt is computed for the first choice."""
        return self.request.scores_prompt and not self.num_new_tokens and self.choices[0] == 0

    @property
    def reads_cache(self) -> bool:
        """Whether it may begin with cached blocks, which have keys and values alone: no logits, no hidden states, and
        nothing that a tap could show.
        """
        request = self.request
        sees_all = self.scores_prompt or request.hidden == "all" or request.is_open or not request.reads_cache
        return bool(self.num_new_tokens) or not sees_all

    @property
    def decodes(self) -> bool:
        """Whether the next token is all that is to be computed."""
        return self.remaining == 1

    @property
    def num_new_tokens(self) -> int:
        """Tokens that were sampled."""
        return len(self.ids) - len(self.request.ids)

    @property
    def name(self) -> str:
        """The request, with the choice where there are several."""
        if self.request.num_choices == 1:
            return self.request.id
        return f"{self.request.id}[{','.join(map(str, self.choices))}]"
