"""One request while it is recorded: what of it was computed in which steps, and the rolling hashes of its choices.

In: what each step brought. Out: its lines, in their order.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from cutaway.audit.record.lines import Body, body_of, encode
from cutaway.audit.record.request_lines import begin_line, end_line, scores_line
from cutaway.audit.record.token_line import Steps, further_fields, token_line
from cutaway.engine.generation import Generation
from cutaway.engine.step_outcome import PieceOutcome
from cutaway.ops.cpu.arrays import Floats

NOTHING: Final = bytes(32)
"""What a rolling hash begins with."""


def roll(before: bytes, row: Floats) -> bytes:
    """SHA-256 of the hash before and of a row [D] float32, little-endian, as all machines are that it runs on."""
    return hashlib.sha256(b"".join((before, row.data))).digest()


Further = Callable[[int], Mapping[str, Any]]
"""What the line of a choice's new token has besides; told once for each."""


class StepFacts(NamedTuple):
    """What all lines of a step have in common."""

    number: int
    sequences: int
    tokens: int


class RequestLog:
    """Knows of each choice how many tokens it has, and where its hash has come to."""

    def __init__(self, generation: Generation) -> None:
        params = generation.asked.params
        self.generation = generation
        self._name = encode(generation.request_id)
        self._residuals = [NOTHING] * params.n
        self._lengths = [0] * params.n
        self._steps: dict[int, Steps] = {}  # by choice, since its last token
        self._has_scores = params.prompt_logprobs is None
        self._has_logprobs = params.logprobs is not None

    def begin(self) -> dict[str, Any]:
        """The first line."""
        return begin_line(self.generation)

    def advance(self, of_step: StepFacts, outcome: PieceOutcome, further: Further | None) -> list[Body]:
        """The lines that a step brings. further: fields of a choice's new token."""
        piece, request_id = outcome.piece, self.generation.request_id
        first = piece.sequence.choices[0]
        steps = self._steps.pop(first, None) or []
        steps.append((of_step.number, piece.start, piece.num_tokens, of_step.sequences, of_step.tokens))
        if not piece.choices:
            self._steps[first] = steps
            return []
        lines = []
        for choice, sample, delta in zip(piece.choices, outcome.samples, outcome.deltas, strict=False):
            assert outcome.residual is not None
            residual = self._residuals[choice] = roll(self._residuals[choice], outcome.residual)
            number = self._lengths[choice]
            self._lengths[choice] = number + 1
            is_usual = delta.finish_reason is None and not self._has_logprobs
            more = {} if is_usual else further_fields(sample, delta, self._has_logprobs)
            if further is not None:
                more.update(further(choice))
            lines.append(
                (request_id, token_line(self._name, choice, number, sample, delta, residual.hex(), steps, more))
            )
        if not self._has_scores and first == 0:
            self._has_scores = True
            lines.append((request_id, body_of(scores_line(self.generation))))
        return lines

    def end(self, reason: str) -> dict[str, Any]:
        """The last line."""
        left = [each for steps in self._steps.values() for each in steps]
        return end_line(self.generation, reason, self._lengths, left)
