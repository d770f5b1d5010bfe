"""One choice of a request while it is recorded: where its rolling hash has come to, and the lines of its tokens. There
is a line for each token, so it is written as text, in a quarter of the time that a general encoder takes.

In: what was sampled, from which residual, and what it was to whoever asked. Out: a line's body: JSON as it stands in
the record up to its last brace, in front of which the line's hash is put.
"""

from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii as encode_string
from typing import Any, Final

from cutaway.audit.record.lines import encode, exact, sha256
from cutaway.engine.outputs import Delta
from cutaway.ops.cpu.arrays import Floats
from cutaway.sampling.sampler import SampleResult

NOTHING: Final = bytes(32)
"""What a rolling hash begins with."""


class ChoiceLog:
    """``length``: its tokens so far. ``steps``: those that computed a part since the last token, if this choice is the
    first of its sequence; as JSON, [step, first position, tokens, the step's sequences, the step's tokens] each.
    """

    __slots__ = ("_begin", "_rolled", "length", "steps")

    def __init__(self, request_id: str, index: int) -> None:
        self.length = 0
        self.steps: list[str] = []
        self._begin = f'{{"kind":"token","request":{encode(request_id)},"choice":{index},"token":'
        self._rolled = NOTHING

    def token_line(
        self,
        sample: SampleResult,
        delta: Delta,
        residual: Floats,
        steps: Sequence[str],
        further: Mapping[str, Any],
    ) -> str:
        """The next token's. residual: [D], of the row whose logits it was sampled from. steps: of its sequence.
        further: fields behind these.

        The rolling hash is the SHA-256 of the one before and of the residual, little-endian, as all machines are that
        it runs on.
        """
        rolled = sha256()
        rolled.update(self._rolled)
        rolled.update(residual.data)
        self._rolled = rolled.digest()
        number, self.length = self.length, self.length + 1
        body = (
            f'{self._begin}{number},"id":{sample.token_id},"text":{encode_string(delta.text)},'
            f'"logprob":{_number(sample.logprob)},"noise":{_number(sample.noise)},'
            f'"residual":"{self._rolled.hex()}","steps":[{",".join(steps)}]'
        )
        return f"{body},{encode(further)[1:-1]}" if further else body


def _number(value: float | None) -> str:
    """A number as ``exact`` has it, or null."""
    if value is None:
        return "null"
    return repr(value) if value - value == 0 else encode(exact(value))


def further_fields(sample: SampleResult, delta: Delta, has_logprobs: bool) -> dict[str, Any]:
    """What a line has only where it was asked for, or where it is the choice's last."""
    found: dict[str, Any] = {}
    if has_logprobs:
        found["rank"], found["top"] = sample.rank, listed(sample.top_logprobs)
    if delta.finish_reason is not None:
        found["finish"], found["stop"] = delta.finish_reason, delta.stop_reason
    return found


def listed(top: Sequence[tuple[int, float]]) -> list[list[Any]]:
    """Ids with their log-probabilities."""
    return [[token, exact(value)] for token, value in top]
