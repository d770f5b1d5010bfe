"""The sampler: one row of logits in, one token out.

In: logits [V] float32, the parameters of the request, the sequence so far, the key of its noise. Out: the token's id,
with log-probabilities if they were asked for. The same bits on every machine, given the floating-point environment of
``ops.cpu.threads.float_environment``, which the caller sets.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from cutaway.errors import ComputationError, CutawayError, InvalidRequestError
from cutaway.ops.cpu.arrays import Floats
from cutaway.sampling.choose import (
    ALL_MASKED,
    NO_CANDIDATE,
    NOT_A_NUMBER,
    OUTSIDE_VOCABULARY,
    Outcome,
    choose_compiled,
    rebind,
)
from cutaway.sampling.gumbel import write_noise
from cutaway.sampling.history import EMPTY_HISTORY, History
from cutaway.sampling.params import MOST_LOGPROBS, SamplingParams
from cutaway.sampling.params_record import NO_LOGPROBS, OWN_LOGPROB, ParamsRecord
from cutaway.sampling.philox import BLOCK
from cutaway.sampling.row import SamplerScratch

NOTHING_ASKED: Final = SamplingParams().record


class NoiseKey(NamedTuple):
    """What the noise of a draw depends on, beside the token's id."""

    seed: int  # any int64
    choice: int  # which of a request's parallel answers, from 0
    position: int  # of the token being chosen, in its sequence


class Row(NamedTuple):
    """What the next token of a sequence is chosen by."""

    logits: Floats  # [V] float32, contiguous
    params: SamplingParams
    key: NoiseKey
    history: History = EMPTY_HISTORY
    is_scored: bool = False  # the log-probability is wanted, whether the parameters ask for it or not

    @property
    def record(self) -> ParamsRecord:
        """The parameters for compiled code."""
        return self.params.scored_record if self.is_scored else self.params.record


class SampleResult(NamedTuple):
    """A chosen token. Log-probabilities and rank are the model's own: of the row before all steps."""

    token_id: int
    logprob: float | None  # of the token; None if not asked for
    top_logprobs: tuple[tuple[int, float], ...]  # (id, logprob) of the likeliest, the likeliest first
    rank: int | None = None  # 1 + the number of tokens that are likelier; None if no logprobs were asked for
    noise: float | None = None  # with which it won the draw; None where nothing was drawn


def sample_row(
    logits: Floats,
    params: SamplingParams,
    key: NoiseKey,
    scratch: SamplerScratch,
    history: History = EMPTY_HISTORY,
) -> SampleResult:
    """Choose the next token; logits: [V] float32, contiguous; ``scratch`` was allocated for V or more.

    Nothing but ``scratch`` is written. ``params.seed`` is not read: the key has the seed in effect. Ids are below V:
    the request has passed ``check_against_vocabulary``. Raises ComputationError if a logit is NaN or all are -∞,
    InvalidRequestError if all tokens are masked.
    """
    row = Row(logits, params, key, history)
    return result_of(choose_compiled(*arguments_of(row, scratch)), row, scratch)


def sample_open(
    logits: Floats,
    params: SamplingParams,
    key: NoiseKey,
    scratch: SamplerScratch,
    history: History,
    tap: Callable[[str, Any], None],
) -> SampleResult:
    """``sample_row`` step by step, with the same bits: ``tap(name, values)`` after each of ``choose.STEPS``.

    "logits" is the row as it came; "logit_bias", "masks" and "penalties" are followed by the adjusted logits [V];
    "temperature", "top_k", "top_p" and "min_p" by distances [Vp], where the probability of an id is proportional to
    e^-distance and ∞ stands for one that was dropped. At temperature 0 the largest logit decides and these four are not
    taken. The tap sees the sampler's own arrays: copy what you keep.
    """
    row = Row(logits, params, key, history)
    return result_of(rebind(tap)(*arguments_of(row, scratch)), row, scratch)


def score_row(logits: Floats, token_id: int, num_logprobs: int, scratch: SamplerScratch) -> SampleResult:
    """A given token's log-probability and rank, and the ``num_logprobs`` likeliest (0 … 20): as if it had been chosen.

    The log-probability is -∞ where the model excludes the token. Raises ComputationError if a logit is NaN or all are
    -∞.
    """
    V = logits.shape[0]
    assert 0 <= token_id < V
    assert 0 <= num_logprobs <= MOST_LOGPROBS
    asked = NOTHING_ASKED._replace(num_logprobs=num_logprobs)
    outcome = choose_compiled(_checked(logits, scratch), asked, EMPTY_HISTORY, token_id, 0, 0, 0, scratch)
    if outcome[0] < 0:
        raise _no_numbers(logits, outcome[0], "")
    return _result(outcome, num_logprobs, scratch)


def noise_row(key: NoiseKey, V: int) -> Floats:
    """The noise of every id [V] float32: to look at, since ``draw`` computes only what can win."""
    noise = np.zeros(-(-V // BLOCK) * BLOCK, np.float32)
    write_noise(noise, key.seed, key.choice, key.position)
    return noise[:V]


def _checked(logits: Floats, scratch: SamplerScratch) -> Floats:
    """The logits, checked, as memory that compiled code takes."""
    assert logits.dtype == np.float32
    assert logits.flags.c_contiguous
    assert scratch.distances.shape[0] >= logits.shape[0]
    return logits if logits.flags.writeable else logits.copy()  # read-only arrays would be compiled for apart


def arguments_of(row: Row, scratch: SamplerScratch) -> tuple[Any, ...]:
    """The arguments of ``choose`` for a row."""
    if row.history is not EMPTY_HISTORY:
        for ids in row.history:
            assert ids.dtype == np.int32
            assert ids.flags.c_contiguous
            assert ids.flags.writeable  # others would be compiled for apart
    seed, choice, position = row.key
    return _checked(row.logits, scratch), row.record, row.history, -1, seed, choice, position, scratch


def result_of(outcome: Outcome, row: Row, scratch: SamplerScratch) -> SampleResult:
    """What ``choose`` has found for a row. Raises as ``sample_row``."""
    if outcome[0] < 0:
        raise _no_token(row.logits, row.params, row.history, row.key, outcome[0])
    return _result(outcome, row.record.num_logprobs, scratch)


def _result(outcome: Outcome, num_logprobs: int, scratch: SamplerScratch) -> SampleResult:
    token, value, place, listed, won = outcome
    noise = float(won) if won == won else None
    if num_logprobs == NO_LOGPROBS:
        return SampleResult(int(token), None, (), None, noise)
    if num_logprobs == OWN_LOGPROB:
        return SampleResult(int(token), float(value), (), None, noise)
    best: tuple[tuple[int, float], ...] = ()
    if listed:
        ids, values = scratch.best_ids[:listed].tolist(), scratch.best_logprobs[:listed].tolist()
        best = tuple(zip(ids, values, strict=True))
    return SampleResult(int(token), float(value), best, int(place), noise)


def _no_numbers(logits: Floats, reason: int, where: str) -> ComputationError:
    V = logits.shape[0]
    if reason == NOT_A_NUMBER:
        return ComputationError(
            f"the logit of id {int(np.isnan(logits).argmax())} (of {V}){where} is NaN; logits must be numbers. The "
            "model's weights may be damaged, or its format at fault: check the file."
        )
    assert reason == NO_CANDIDATE
    return ComputationError(
        f"all {V} logits{where} are -inf; at least one token must be possible. The model's weights may be damaged, or "
        "its format at fault: check the file."
    )


def _no_token(logits: Floats, params: SamplingParams, history: History, key: NoiseKey, reason: int) -> CutawayError:
    """Why no token could be chosen."""
    V, where = logits.shape[0], f" at position {key.position}"
    if reason == OUTSIDE_VOCABULARY:
        return InvalidRequestError(
            f"an id of the request or of its history{where} is outside the vocabulary, 0 to {V - 1}. Check requests by "
            "check_against_vocabulary before they are admitted."
        )
    if reason != ALL_MASKED:
        return _no_numbers(logits, reason, where)
    masks = []
    if params.allowed_token_ids:
        masks.append(f"allowed_token_ids allows {len(params.allowed_token_ids)}")
    if history.forbidden_ids.size:
        masks.append(f"bad_words and min_tokens forbid {history.forbidden_ids.size}")
    if history.allowed_bits.size:
        allowed = sum(bin(word).count("1") for word in history.allowed_bits.view(np.uint32).tolist())
        masks.append(f"structured_outputs allows {allowed}")
    return InvalidRequestError(
        f"of {V} tokens{where} none is left: {', '.join(masks)}. Allow more tokens, or forbid fewer.",
        "allowed_token_ids" if params.allowed_token_ids else "bad_words" if params.bad_words else "structured_outputs",
    )
