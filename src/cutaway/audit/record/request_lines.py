"""What a record says of a request: what was asked, each token, the end.

In: the engine's own objects. Out: contents of lines, plain JSON values. All but ``OF_THE_RUN`` follows from the model,
the request and the numerical contract, so that a replay finds the same.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from cutaway.audit.record.lines import exact
from cutaway.engine.choice import Asked
from cutaway.engine.generation import Generation
from cutaway.engine.outputs import Delta
from cutaway.sampling.sampler import SampleResult

OF_THE_RUN: Final = frozenset({"request", "time", "priority", "steps", "cached", "reason", "tensors"})
"""Fields that depend on when and beside whom a request ran: a replay can't find them again."""

Steps = list[list[int]]
"""[step, first position, tokens, sequences of the step, tokens of the step], one for each step that computed a part."""


def now() -> str:
    """The time of day, UTC, in whole milliseconds."""
    seconds = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds * 1000) % 1000:03}Z"


def begin_line(generation: Generation) -> dict[str, Any]:
    """What was asked: the ids, the parameters in effect, and what else decides on the answer."""
    asked: Asked = generation.asked
    return {
        "kind": "begin",
        "request": generation.request_id,
        "time": now(),
        "prompt_ids": list(asked.prompt_ids),
        "params": {**asdict(asked.params), "seed": asked.seed},
        "max_new_tokens": asked.max_new_tokens,
        "stop_ids": sorted(asked.stop_ids),
        "shown_ids": sorted(asked.shown_ids),
        "pooling": asked.pooling,
        "priority": generation.priority,
    }


def scores_line(generation: Generation) -> dict[str, Any]:
    """The log-probabilities of the prompt's tokens, where they were asked for: [id, logprob, rank, likeliest] of each
    but the first.
    """
    scores = generation.scores
    values = [
        [each.token_id, exact(each.logprob), each.rank, _listed(each.top_logprobs)]
        for each in (scores[position] for position in sorted(scores))
    ]
    return {"kind": "scores", "request": generation.request_id, "scores": values}


def token_line(
    generation: Generation, choice: int, number: int, sample: SampleResult, delta: Delta, residual: str, steps: Steps
) -> dict[str, Any]:
    """A token. number: among the choice's, from 0. residual: the rolling hash. steps: since the choice's last token."""
    line: dict[str, Any] = {
        "kind": "token",
        "request": generation.request_id,
        "choice": choice,
        "token": number,
        "id": sample.token_id,
        "text": delta.text,
        "logprob": exact(sample.logprob),
        "noise": sample.noise,
        "residual": residual,
        "steps": steps,
    }
    if generation.asked.params.logprobs is not None:
        line["rank"], line["top"] = sample.rank, _listed(sample.top_logprobs)
    if delta.finish_reason is not None:
        line["finish"], line["stop"] = delta.finish_reason, delta.stop_reason
    return line


def end_line(generation: Generation, reason: str, lengths: Sequence[int], steps: Steps) -> dict[str, Any]:
    """The end. lengths: how many tokens each choice has. steps: that computed what no token came of."""
    vector = None
    if generation.pool is not None and reason == "end":
        vector = hashlib.sha256(generation.pool.vector().tobytes()).hexdigest()
    return {
        "kind": "end",
        "request": generation.request_id,
        "time": now(),
        "reason": reason,
        "tokens": list(lengths),
        "cached": generation.num_cached_tokens,
        "embedding": vector,
        "steps": steps,
    }


def _listed(top: Sequence[tuple[int, float]]) -> list[list[Any]]:
    return [[token, exact(value)] for token, value in top]
