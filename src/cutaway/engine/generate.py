"""One request: the prompt's tokens through the forward, then one token a step, each drawn from the logits of the last.

In: a runner, prompt ids, sampling parameters. Out: tokens with their logprobs, one by one, and why it ended.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cutaway.engine.outputs import FinishReason
from cutaway.engine.runner import PAGE_LENGTH
from cutaway.errors import CapacityError, InvalidRequestError
from cutaway.model.batch import Piece, make_batch
from cutaway.ops.cpu.arrays import Batch, Floats
from cutaway.ops.cpu.threads import float_environment
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, SampleResult, sample_row


class Steps(Protocol):
    """What generation needs of a runner; tests put a table of logits here."""

    context: int
    max_step_tokens: int
    vocab_size: int

    def step(self, batch: Batch) -> Floats:
        """The logits [O, V] of the batch's output rows."""


@dataclass(frozen=True)
class GeneratedToken:
    """One step of generation. ``finish_reason`` is set on the last."""

    token_id: int
    sample: SampleResult
    rank: int | None  # of the token in the model's own distribution, 1 is the most likely; None without logprobs
    finish_reason: FinishReason | None


def check_prompt(prompt_ids: Sequence[int], context: int, vocab_size: int) -> None:
    """Refuse a prompt that can't be computed: empty, ids outside the vocabulary, or no room for one more token."""
    if not prompt_ids:
        raise InvalidRequestError("the prompt is empty; it must have at least 1 token. Write something.", "prompt")
    for index, token_id in enumerate(prompt_ids):
        is_integer = isinstance(token_id, int) and not isinstance(token_id, bool)
        if not is_integer or not 0 <= token_id < vocab_size:
            raise InvalidRequestError(
                f"prompt token {index} is {token_id!r}; it must be an integer from 0 to {vocab_size - 1}. Use the ids "
                "of this model's own tokenizer.",
                "prompt",
            )
    if len(prompt_ids) >= context:
        raise CapacityError(
            f"the prompt has {len(prompt_ids)} tokens; the context holds {context}, and one must be left for the "
            "answer. Shorten the prompt, or raise the context where the model allows it."
        )


def generate_tokens(
    runner: Steps,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    seed: int,
    stop_ids: frozenset[int],
    scratch: SamplerScratch,
) -> Iterator[GeneratedToken]:
    """Generate until a stop id, ``max_tokens``, or the end of the context (both "length").

    The prompt has passed ``check_prompt``. It is computed in chunks of at most ``runner.max_step_tokens``; the result
    does not depend on them. The stop id itself is yielded last. Noise is a function of (seed, choice 0, the new token's
    position, candidate).
    """
    pages = np.arange(-(-runner.context // PAGE_LENGTH), dtype=np.int32)  # the whole pool: one sequence has it
    limit = runner.context if params.max_tokens is None else min(runner.context, len(prompt_ids) + params.max_tokens)
    chunk = runner.max_step_tokens
    for start in range(0, len(prompt_ids), chunk):
        logits = runner.step(make_batch([Piece(start, prompt_ids[start : start + chunk], pages)]))
    for position in range(len(prompt_ids), limit):
        row = logits[0]
        with float_environment():
            sample = sample_row(row, params, NoiseKey(seed, 0, position), scratch)
        rank = None if params.logprobs is None else 1 + int(np.count_nonzero(row > row[sample.token_id]))
        finish: FinishReason | None = None
        if sample.token_id in stop_ids and not params.ignore_eos:
            finish = "stop"
        elif position + 1 == limit:
            finish = "length"
        yield GeneratedToken(sample.token_id, sample, rank, finish)
        if finish is not None:
            return
        logits = runner.step(make_batch([Piece(position, [sample.token_id], pages)]))
