"""The steps that a benchmark measures: a whole prompt, and one new token in each of some sequences after a context.

In: a runner and sizes. Out: a batch. Token ids are arbitrary but always the same, and a context's keys and values are
filled in instead of computed: speed depends on neither.
"""

import numpy as np

from cutaway.engine.runner import ModelRunner
from cutaway.errors import InvalidRequestError
from cutaway.memory.kv_cache import KVPool
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


def fill_kv(pool: KVPool) -> None:
    """Write every key and value: numbers from -1 to 1, of both signs. Memory that was never written would be read from
    one page of zeros, and faster than a real context.
    """
    for numbers, scales in ((pool.keys, pool.key_scales), (pool.values, pool.value_scales)):
        last = numbers.shape[-1] * numbers.shape[-2]
        scale = 1 / np.iinfo(numbers.dtype).max if scales.size else 1.0
        numbers[:] = ((np.arange(last) * STRIDE % 2048 / 1024 - 1) / scale).reshape(numbers.shape[-2:])
        scales[:] = scale


def _piece(runner: ModelRunner, start: int, count: int, sequence: int = 0) -> Piece:
    tokens = [STRIDE * position % runner.config.vocab_size for position in range(start, start + count)]
    needed = -(-(start + count) // runner.kv.page_length)
    return Piece(start, tokens, np.arange(sequence * needed, (sequence + 1) * needed, dtype=np.int32))


def prefill_batch(runner: ModelRunner, length: int) -> Batch:
    """A prompt of ``length`` tokens in one step."""
    return make_batch([_piece(runner, 0, length)])


def decode_batch(runner: ModelRunner, context: int, rows: int = 1) -> Batch:
    """One token in each of ``rows`` sequences, which attends ``context`` positions, itself among them. Each sequence
    has pages of its own; what lies in them is for the caller to fill (``fill_kv``).
    """
    return make_batch([_piece(runner, context - 1, 1, sequence) for sequence in range(rows)])
