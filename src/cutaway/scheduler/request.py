"""A request as the scheduler sees it: integers and times, no text and no sampling parameters.

In: what the engine was asked. Out: a record that never changes; what becomes of it is in ``sequence.SequenceState``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Hidden: TypeAlias = Literal["last", "all"]


@dataclass(frozen=True)
class Request:
    """One prompt with its choices. Times are seconds on the clock whose reading is given to ``Scheduler.schedule``."""

    id: str
    ids: Sequence[int]  # of the prompt
    max_new_tokens: int
    num_choices: int = 1  # answers to the one prompt; there may be more than can run together
    priority: int = 0  # 0 goes first
    arrival: float = 0.0
    deadline: float | None = None  # when it is ended, whatever its state
    salt: bytes = b""  # requests of different salts share no cached block
    scores_prompt: bool = False  # the logits of all its tokens are wanted
    bulk: bool = False  # one of a long list: it waits in places of the queue that only such requests take
    hidden: Hidden | None = None  # the hidden states of these tokens are wanted, and no logits: it ends with its prompt

    is_open: bool = False  # its tokens go through steps that are run open, which have no others
    reads_cache: bool = True  # of the prompt, what was computed before need not be computed again

    @property
    def longest(self) -> int:
        """Positions that one choice has at most: the last new token is never an input, so it has none."""
        return len(self.ids) + self.max_new_tokens - 1
