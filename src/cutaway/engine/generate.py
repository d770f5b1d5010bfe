"""One sequence: its tokens through the forward, as far as the cache lacks them, then one token a step, each drawn from
the logits of the last.

In: a runner, a cache, prompt ids, sampling parameters. Out: tokens with their logprobs, one by one, and why it ended.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cutaway.engine.outputs import FinishReason
from cutaway.errors import CapacityError, InvalidRequestError
from cutaway.memory.sequence_cache import SequenceCache
from cutaway.model.batch import Piece, make_batch
from cutaway.ops.cpu.arrays import Batch, Floats, Ints
from cutaway.ops.cpu.threads import float_environment
from cutaway.sampling.forbidden import BadWords, forbidden_ids
from cutaway.sampling.history import History
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, SampleResult, sample_row, score_row


class Steps(Protocol):
    """What generation needs of a runner; tests put a table of logits here."""

    context: int
    max_step_tokens: int
    max_step_outputs: int
    vocab_size: int

    def step(self, batch: Batch) -> Floats:
        """The logits [O, V] of the batch's output rows."""


@dataclass(frozen=True)
class GeneratedToken:
    """One step of generation. ``finish_reason`` is set on the last."""

    token_id: int
    sample: SampleResult
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


def next_logits(runner: Steps, cache: SequenceCache, ids: Ints) -> Floats:
    """The logits [V] of the token after ``ids`` [N], of which only those are computed that the cache lacks.

    They are computed in chunks of at most ``runner.max_step_tokens``; the result does not depend on them.
    """
    first = cache.reuse(ids)
    pages = cache.reserve(len(ids))
    while first < len(ids):
        chunk = ids[first : first + runner.max_step_tokens]
        logits = runner.step(make_batch([Piece(first, chunk.tolist(), pages)]))
        cache.append(chunk)
        first += len(chunk)
    cache.end_step()
    row: Floats = logits[0]
    return row


def score_prompt(
    runner: Steps, cache: SequenceCache, prompt_ids: Sequence[int], num_logprobs: int, scratch: SamplerScratch
) -> Iterator[SampleResult]:
    """The logprob of each prompt token but the first, given those before it, with the likeliest ones at its place.

    Everything is computed anew, in blocks of at most ``runner.max_step_outputs`` tokens, so that no more rows of
    logits exist at a time. prompt_ids: N ≥ 1.
    """
    ids = np.array(prompt_ids, np.int32)
    cache.clear()
    pages = cache.reserve(len(ids))
    for first in range(0, len(ids) - 1, runner.max_step_outputs):
        chunk = ids[first : min(first + runner.max_step_outputs, len(ids) - 1)]
        logits = runner.step(make_batch([Piece(first, chunk.tolist(), pages, outputs=len(chunk))]))
        cache.append(chunk)
        for row in range(len(chunk)):
            with float_environment():
                scored = score_row(logits[row], int(ids[first + row + 1]), num_logprobs, scratch)
            yield scored
    cache.end_step()


def generate_tokens(
    runner: Steps,
    cache: SequenceCache,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    seed: int,
    choice: int,
    stop_ids: frozenset[int],
    bad_words: BadWords,
    scratch: SamplerScratch,
) -> Iterator[GeneratedToken]:
    """Generate until a stop id, ``max_tokens``, or the end of the context (both "length").

    The prompt has passed ``check_prompt``. stop_ids: those that end this request; the one that does is yielded last.
    Noise is a function of (seed, choice, the new token's position, candidate). Between two tokens another sequence may
    have the cache: what it overwrote is computed again.
    """
    num_prompt = len(prompt_ids)
    limit = runner.context if params.max_tokens is None else min(runner.context, num_prompt + params.max_tokens)
    ids = np.zeros(limit, np.int32)
    ids[:num_prompt] = prompt_ids
    for position in range(num_prompt, limit):
        row = next_logits(runner, cache, ids[:position])
        prompt, output = ids[:num_prompt], ids[num_prompt:position]
        history = History(prompt, output, forbidden_ids(params, bad_words, output, stop_ids))
        with float_environment():
            sample = sample_row(row, params, NoiseKey(seed, choice, position), scratch, history)
        ids[position] = sample.token_id
        finish: FinishReason | None = None
        if sample.token_id in stop_ids:
            finish = "stop"
        elif position + 1 == limit:
            finish = "length"
        yield GeneratedToken(sample.token_id, sample, finish)
        if finish is not None:
            return
