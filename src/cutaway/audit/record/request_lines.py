"""What a record says of a request: what was asked, its prompt's scores, the end.

In: the engine's own objects. Out: contents of lines, plain JSON values. All but ``OF_THE_RUN`` follows from the model,
the request and the numerical contract, so that a replay finds the same.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from cutaway.audit.record.choice_log import listed
from cutaway.audit.record.lines import exact
from cutaway.engine.choice import Asked
from cutaway.engine.generation import Generation

OF_THE_RUN: Final = frozenset({"request", "time", "priority", "steps", "cached", "reason", "tensors"})
"""Fields that depend on when and beside whom a request ran: a replay can't find them again."""


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
        [each.token_id, exact(each.logprob), each.rank, listed(each.top_logprobs)]
        for each in (scores[position] for position in sorted(scores))
    ]
    return {"kind": "scores", "request": generation.request_id, "scores": values}


def end_line(generation: Generation, reason: str, lengths: Sequence[int], steps: list[list[int]]) -> dict[str, Any]:
    """The end. lengths: how many tokens each choice has. steps: that computed what no token came of."""
    vector = None
    if generation.embedding is not None and reason == "end":
        vector = hashlib.sha256(generation.embedding.tobytes()).hexdigest()
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
