"""One request while it is recorded: the lines of its choices' tokens, from its first line to its last.

In: what each step brought. Out: its lines, in their order.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from cutaway.audit.record.choice_log import ChoiceLog, further_fields
from cutaway.audit.record.lines import body_of
from cutaway.audit.record.request_lines import begin_line, end_line, scores_line
from cutaway.engine.generation import Generation
from cutaway.engine.results import PieceResult, Taken
from cutaway.ops.cpu.arrays import Floats
from cutaway.sampling.sampler import SampleResult

Further = Callable[[int], Mapping[str, Any]]
"""What the line of a choice's new token has besides; told once for each."""
NOTHING_FURTHER: Final[Mapping[str, Any]] = {}
OfStep = tuple[int, str]
"""What all lines of a step have in common: its number; its sequences and tokens, as they stand in a line."""


class RequestLog:
    """Knows how far each choice has come."""

    __slots__ = ("_choices", "_has_logprobs", "_has_scores", "generation", "request_id")

    def __init__(self, generation: Generation) -> None:
        params = generation.asked.params
        self.generation, self.request_id = generation, generation.request_id
        self._choices = [ChoiceLog(generation.request_id, index) for index in range(params.n)]
        self._has_scores = params.prompt_logprobs is None
        self._has_logprobs = params.logprobs is not None

    def begin(self) -> dict[str, Any]:
        """The first line."""
        return begin_line(self.generation)

    def advance(
        self,
        of_step: OfStep,
        result: PieceResult,
        taken: Taken,
        residuals: Floats,
        further: Further | None,
        add: Callable[[str, str], None],
    ) -> None:
        """``add(request_id, body)`` for each line that a step brings. residuals: [O, D], of the step's output rows.
        further: fields of a choice's new token.
        """
        sequence, start, num_tokens, choices = result.piece
        first = sequence.choices[0]
        steps = self._choices[first].steps
        steps.append(f"[{of_step[0]},{start},{num_tokens},{of_step[1]}]")
        if not choices:
            return
        samples = cast("list[SampleResult]", result.samples)  # what has a delta is no error
        for choice, sample, delta in zip(choices, samples, taken.deltas, strict=False):
            more: Mapping[str, Any] = NOTHING_FURTHER
            if self._has_logprobs or delta.finish_reason is not None:
                more = further_fields(sample, delta, self._has_logprobs)
            if further is not None:
                more = {**more, **further(choice)}
            residual = residuals[result.last_output]
            add(self.request_id, self._choices[choice].token_line(sample, delta, residual, steps, more))
        steps.clear()
        if not self._has_scores and first == 0 and taken.deltas:  # an error may have kept some of them back
            self._has_scores = True
            add(self.request_id, body_of(scores_line(self.generation)))

    def end(self, reason: str) -> dict[str, Any]:
        """The last line."""
        left = [json.loads(step) for choice in self._choices for step in choice.steps]
        return end_line(self.generation, reason, [choice.length for choice in self._choices], left)
