"""The two steps that a benchmark measures: a whole prompt, and one new token after some context.

In: a runner and a length. Out: a batch of one sequence. Token ids are arbitrary but always the same: speed doesn't
depend on them.
"""

import numpy as np

from cutaway.engine.runner import PAGE_LENGTH, ModelRunner
from cutaway.errors import InvalidRequestError
from cutaway.model.batch import Piece, make_batch
from cutaway.model.config import ModelConfig
from cutaway.ops.cpu.arrays import Batch

STRIDE = 7919  # a prime: successive ids lie far apart in the embedding


def check_length(field: str, length: int, config: ModelConfig) -> None:
    """Refuse a length that the model's context doesn't hold."""
    if not 1 <= length <= config.context_length:
        raise InvalidRequestError(
            f"{field} is {length}; {config.name} was trained on 1 to {config.context_length} positions. "
            "Choose one of these.",
            field,
        )


def _piece(runner: ModelRunner, start: int, count: int) -> Piece:
    tokens = [STRIDE * position % runner.config.vocab_size for position in range(start, start + count)]
    return Piece(start, tokens, np.arange(-(-(start + count) // PAGE_LENGTH), dtype=np.int32).tolist())


def prefill_batch(runner: ModelRunner, length: int) -> Batch:
    """A prompt of ``length`` tokens in one step."""
    return make_batch([_piece(runner, 0, length)])


def decode_batch(runner: ModelRunner, context: int) -> Batch:
    """One token that attends ``context`` positions, itself among them. The ones before it are computed here."""
    for start in range(0, context - 1, runner.limits.max_tokens):
        runner.step(make_batch([_piece(runner, start, min(runner.limits.max_tokens, context - 1 - start))]))
    return make_batch([_piece(runner, context - 1, 1)])
