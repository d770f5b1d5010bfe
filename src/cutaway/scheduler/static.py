"""Static batching: a fixed batch, padded to its longest prompt; all wait for the slowest.

In: the state. Out: the pieces of a step and its pads. Bucketed batching is the same with requests of similar length
together. Both are here to be compared with: what they waste is really computed and really reserved.
"""

from collections.abc import Hashable

from cutaway.errors import counted
from cutaway.memory.block_manager import NOTHING_CACHED
from cutaway.scheduler.request import Request
from cutaway.scheduler.sequence import SequenceState, State
from cutaway.scheduler.state import SchedulerState
from cutaway.scheduler.step import Step, StepPiece


class StaticPolicy:
    """A batch is a rectangle: a row for each sequence, columns for the longest prompt and then for the longest answer.

    Prompts end at the same column: the columns before a shorter one are pads, and so is every column of a row behind
    its end. Each row holds blocks for the whole width from the first step until the batch ends; only a row that is
    aborted gives them back at once.
    """

    shares_prompt = False
    frees_at_end = False

    def __init__(self, *, bucketed: bool = False) -> None:
        """bucketed: only requests whose prompt and whose answer have lengths within one power of two share a batch."""
        self.name = "bucketed" if bucketed else "static"
        self._bucketed = bucketed
        self._rows: list[SequenceState] = []
        self._prompt = 0  # columns of the longest prompt
        self._column = 0  # how many of them are computed
        self._planned = 0  # how many more the last planned step has

    def bucket(self, request: Request) -> Hashable:
        """The powers of two within which the prompt's and the answer's lengths lie."""
        return (len(request.ids).bit_length(), request.max_new_tokens.bit_length()) if self._bucketed else None

    def plan(self, state: SchedulerState, step: Step) -> None:
        """Add the next columns of the batch: of its prompts, as many as the budget allows, else one token a row."""
        if not self._rows:
            self._form(state)
        if not self._rows:
            return
        most = state.limits.max_step_tokens // len(self._rows)
        if any(row.scores_prompt for row in self._rows):
            most = min(most, state.limits.max_step_outputs // len(self._rows))
        self._planned = min(self._prompt - self._column, most)
        for row in self._rows:
            if row.state is not State.RUNNING:
                count = 0
            elif self._planned == 0:
                count = 1
            else:
                first = self._prompt - len(row.request.ids)  # its first column that is no pad
                count = min(max(self._column + self._planned - first, 0), self._planned)
            step.num_pads += max(self._planned, 1) - count
            if count:
                choices = row.choices if count == row.remaining else ()
                step.pieces.append(StepPiece(row, row.num_computed, count, choices))

    def completed(self, state: SchedulerState) -> None:
        """Count the columns; a batch of which every row has ended is over, and its blocks are given back."""
        self._column += self._planned
        self.drop_ended(state)

    def drop_ended(self, state: SchedulerState) -> None:
        """End the batch if nobody in it runs."""
        if not any(row.state is State.RUNNING for row in self._rows):
            for row in self._rows:
                state.give_back(row)
            self._rows = []

    def _form(self, state: SchedulerState) -> None:
        """A new batch: the first that waits, and as many like it as the rows and the blocks suffice for."""
        first = state.waiting.first()
        if first is None:
            return
        prompt, answer = 0, 0
        chosen: list[SequenceState] = []
        while len(chosen) < state.limits.max_sequences:
            following = state.waiting.first_like(first.request)
            if following is None:
                break
            wider = max(prompt, len(following.request.ids)), max(answer, following.request.max_new_tokens)
            each = state.blocks.blocks_for(sum(wider) - 1)
            if (len(chosen) + 1) * each > state.blocks.num_blocks:
                rows = counted(len(chosen) + 1, "row")
                reason = f"{rows} of {counted(each, 'block')} would be more than {state.blocks.num_blocks}"
                state.log.write_change(state.step, following.name, "waits", reason)
                break
            prompt, answer = wider
            chosen.append(following)
            state.admit(following, NOTHING_CACHED, f"row {len(chosen)} of a batch of {prompt} + {answer} columns")
        for row in chosen:
            state.blocks.prepare(row.blocks, 0, prompt + answer - 1)
        self._rows, self._prompt, self._column = chosen, prompt, 0
