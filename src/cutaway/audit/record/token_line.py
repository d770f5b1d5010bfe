"""A token's line: what a record says of it. There is one for each token, so it is written in a quarter of the time that
a general encoder takes.

In: what was sampled, and what it was to whoever asked. Out: a line's body: JSON as it stands in the record up to its
last brace, in front of which the line's hash is put.
"""

from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii as encode_string
from typing import Any

from cutaway.audit.record.lines import encode, exact
from cutaway.engine.outputs import Delta
from cutaway.sampling.sampler import SampleResult

Steps = list[tuple[int, int, int, int, int]]
"""(step, first position, tokens, sequences of the step, tokens of the step), one for each step that computed a part."""


def token_line(
    request: str,
    choice: int,
    number: int,
    sample: SampleResult,
    delta: Delta,
    residual: str,
    steps: Steps,
    further: Mapping[str, Any],
) -> str:
    """request: its id as JSON. number: among the choice's tokens, from 0. residual: the rolling hash, in hex. steps:
    since the choice's last token. further: fields behind these.
    """
    listed_steps = ",".join([f"[{a},{b},{c},{d},{e}]" for a, b, c, d, e in steps])
    body = (
        f'{{"kind":"token","request":{request},"choice":{choice},"token":{number},"id":{sample.token_id},'
        f'"text":{encode_string(delta.text)},"logprob":{_number(sample.logprob)},"noise":{_number(sample.noise)},'
        f'"residual":"{residual}","steps":[{listed_steps}]'
    )
    return f"{body},{encode(further)[1:-1]}" if further else body


def _number(value: float | None) -> str:
    """A finite float as JSON has it; whatever else there may be in place of it."""
    return repr(value) if value is not None and value - value == 0 else encode(exact(value))


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
