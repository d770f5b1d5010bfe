"""The declared order: from a row of logits to a token, step by step. This is the whole of sampling.

In: logits [V] float32, what the request asks, the sequence so far, the key of the noise. Out: a token with its
log-probability and rank. ``choose`` is written once and runs in two ways, as the forward does:

    closed      ``choose_compiled``: one compiled function, without the GIL
    open        ``rebind(tap)``: this very code object run by CPython over the same compiled steps; same bits
"""

import types
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.kernel_cache import root_jit
from cutaway.sampling.adjust import (
    adjusts,
    copy_row,
    count_penalties,
    ids_inside,
    logit_bias,
    masks,
    repetition_penalty,
)
from cutaway.sampling.gumbel import draw, noise_of
from cutaway.sampling.history import History
from cutaway.sampling.logprobs import list_best, log_total, logprob, rank
from cutaway.sampling.params_record import NO_LOGPROBS, OWN_LOGPROB, ParamsRecord
from cutaway.sampling.row import SamplerScratch, argmax, copy_tail, largest, temperature
from cutaway.sampling.steps import min_p, top_k, top_p
from cutaway.sampling.tap import tap

NOT_A_NUMBER: Final = -1
NO_CANDIDATE: Final = -2
ALL_MASKED: Final = -3
OUTSIDE_VOCABULARY: Final = -4

STEPS: Final = ("logit_bias", "masks", "penalties", "temperature", "top_k", "top_p", "min_p")
"""The declared order. A tap hears "logits", the row as it came, and then these."""


Outcome: TypeAlias = tuple[int, np.float32, int, int, np.float32]
"""A token, or one of the negative reasons above why there is none; its log-probability and its rank, 0 where they were
not asked for; how many of the likeliest tokens are listed in ``scratch.best_…``; the noise with which it won, NaN where
nothing was drawn.
"""


def choose(
    logits: Floats,
    asked: ParamsRecord,
    history: History,
    given: int,
    seed: int,
    choice: int,
    position: int,
    scratch: SamplerScratch,
) -> Outcome:
    """The next token. One that is ``given`` (-1: none) is taken without any step.

    Log-probability and rank are the model's own: those of ``logits``, before all steps.
    """
    V = logits.shape[0]
    copy_tail(logits, scratch.tail)
    peak = np.float32(largest(logits, scratch.tail))  # to CPython, compiled code returns a float64
    total, noise, listed = np.float32(0.0), np.float32(np.nan), 0
    if np.isnan(peak):
        return NOT_A_NUMBER, total, 0, listed, noise
    if peak == -np.inf:
        return NO_CANDIDATE, total, 0, listed, noise
    if asked.num_logprobs != NO_LOGPROBS:
        total = np.float32(log_total(logits, scratch.tail, peak))
        if asked.num_logprobs > 0:
            listed = list_best(asked.num_logprobs, logits, peak, total, scratch)
    if given >= 0:
        return given, logprob(logits[given], peak, total), rank(logits, logits[given], peak), listed, noise

    tap("logits", logits)
    row, highest = logits, peak
    adjusting = adjusts(asked, history)
    if adjusting:
        if not ids_inside(asked, history, V):
            return OUTSIDE_VOCABULARY, total, 0, listed, noise
        row = scratch.adjusted[:V]
        copy_row(logits, row)
    logit_bias(row, asked.bias_ids, asked.bias_values)
    tap("logit_bias", row)
    masks(row, asked.allowed_ids, history.forbidden_ids, history.allowed_bits, scratch.weights)
    tap("masks", row)
    repetition_penalty(row, asked.repetition, history.prompt_ids, history.output_ids, scratch.counts)
    count_penalties(row, asked.presence, asked.frequency, history.output_ids, scratch.counts)
    tap("penalties", row)
    if adjusting:
        copy_tail(row, scratch.tail)
        highest = np.float32(largest(row, scratch.tail))
        if highest == -np.inf:
            return ALL_MASKED, total, 0, listed, noise

    if np.float32(asked.temperature) == 0:
        token = argmax(row, scratch.tail, highest)
    else:
        temperature(row, scratch.tail, highest, np.float32(asked.temperature), scratch.distances)
        tap("temperature", scratch.distances)
        top_k(scratch.distances, asked.top_k, scratch.weights, scratch.buckets)
        tap("top_k", scratch.distances)
        top_p(scratch.distances, asked.top_p, scratch.weights, scratch.buckets)
        tap("top_p", scratch.distances)
        min_p(scratch.distances, asked.min_p)
        tap("min_p", scratch.distances)
        token = draw(scratch.distances, seed, choice, position)
        noise = np.float32(noise_of(token, seed, choice, position, scratch.weights))
    if asked.num_logprobs == NO_LOGPROBS:
        return token, total, 0, listed, noise
    place = 0 if asked.num_logprobs == OWN_LOGPROB else rank(logits, logits[token], peak)
    return token, logprob(logits[token], peak, total), place, listed, noise


def rebind(tap: Callable[[str, Any], None]) -> Callable[..., Outcome]:
    """The code object of ``choose`` with another tap, run by CPython."""
    return types.FunctionType(choose.__code__, {**choose.__globals__, "tap": tap}, "choose_open")


choose_compiled = root_jit(choose)
