"""The sampler: one row of logits in, one token out.

In: logits [V] float32, the parameters of the request, the key of its noise. Out: the token's id, with log-probabilities
if they were asked for. One compiled function does all of it, with the same bits on every machine, given the
floating-point environment of ``ops.cpu.threads.float_environment``, which the caller sets.
"""

from typing import Final, NamedTuple

import numpy as np

from cutaway.errors import ComputationError
from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.kernel_cache import jit
from cutaway.sampling.gumbel import draw
from cutaway.sampling.logprobs import list_best, log_total, logprob
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch, argmax, copy_tail, largest, temperature
from cutaway.sampling.steps import min_p, top_k, top_p

NOT_A_NUMBER: Final = -1
NO_CANDIDATE: Final = -2


class NoiseKey(NamedTuple):
    """What the noise of a draw depends on, beside the token's id."""

    seed: int  # any int64
    choice: int  # which of a request's parallel answers, from 0
    position: int  # of the token being chosen, in its sequence


class SampleResult(NamedTuple):
    """A chosen token. Log-probabilities are the model's own: of the row before temperature and all other steps."""

    token_id: int
    logprob: float | None  # of the token; None if not asked for
    top_logprobs: tuple[tuple[int, float], ...]  # (id, logprob) of the likeliest, the likeliest first


@jit
def choose(
    logits: Floats,
    t: float,
    k: int,
    p: float,
    m: float,
    seed: int,
    choice: int,
    position: int,
    num_logprobs: int,
    scratch: SamplerScratch,
) -> tuple[int, np.float32, int]:
    """(id, its logprob, how many are listed in ``scratch.best_…``), or a negative id where no token can be chosen.

    t, k, p, m: temperature, top-k, top-p, min-p; num_logprobs: -1 for none. The four calls before ``draw`` are the
    declared order of the steps.
    """
    copy_tail(logits, scratch.tail)
    peak = largest(logits, scratch.tail)
    total, listed = np.float32(0.0), 0
    if np.isnan(peak):
        return NOT_A_NUMBER, total, listed
    if peak == -np.inf:
        return NO_CANDIDATE, total, listed
    if num_logprobs >= 0:
        total = log_total(logits, peak, scratch)
        if num_logprobs > 0:
            listed = list_best(num_logprobs, total, scratch)

    if np.float32(t) == 0:
        token = argmax(logits, scratch.tail, peak)
    else:
        temperature(logits, scratch.tail, peak, np.float32(t), scratch.distances)
        top_k(scratch.distances, k, scratch.weights, scratch.buckets)
        top_p(scratch.distances, p, scratch.weights, scratch.buckets)
        min_p(scratch.distances, m)
        token = draw(scratch.distances, seed, choice, position)
    return token, logprob(logits[token], peak, total), listed


def sample_row(logits: Floats, params: SamplingParams, key: NoiseKey, scratch: SamplerScratch) -> SampleResult:
    """Choose the next token; logits: [V] float32, contiguous; ``scratch`` was allocated for V or more.

    Nothing but ``scratch`` is written. ``params.seed`` is not read: the key has the seed in effect. Raises
    ComputationError if a logit is NaN, or if all are -∞.
    """
    V = logits.shape[0]
    assert logits.dtype == np.float32
    assert logits.flags.c_contiguous
    assert scratch.distances.shape[0] >= V
    token, value, listed = choose(
        logits,
        params.temperature,
        min(params.top_k, V),
        params.top_p,
        params.min_p,
        key.seed,
        key.choice,
        key.position,
        -1 if params.logprobs is None else params.logprobs,
        scratch,
    )
    if token == NOT_A_NUMBER:
        first = int(np.isnan(logits).argmax())
        raise ComputationError(
            f"the logit of id {first} (of {V}) at position {key.position} is NaN; logits must be numbers. The model's "
            "weights may be damaged, or its format at fault: check the file."
        )
    if token == NO_CANDIDATE:
        raise ComputationError(
            f"all {V} logits at position {key.position} are -inf; at least one token must be allowed. Loosen what "
            "masks tokens, or check the model's file."
        )
    if params.logprobs is None:
        return SampleResult(token, None, ())
    best = zip(scratch.best_ids[:listed].tolist(), scratch.best_logprobs[:listed].tolist(), strict=True)
    return SampleResult(token, float(value), tuple(best))
