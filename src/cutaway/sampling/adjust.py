"""The steps that change logits before the distribution is made: logit bias, masks, penalties.

In and out: a row of logits [V] float32, a copy of the model's own. The order is declared in ``choose.choose``: masks
come after the bias, so that no bias brings back what is masked; -∞ stays -∞ in every step after.
"""

import numpy as np

from cutaway.ops.cpu.arrays import Floats, Ints
from cutaway.ops.kernel_cache import jit
from cutaway.sampling.history import History
from cutaway.sampling.params_record import ParamsRecord
from cutaway.sampling.row import FARTHEST


@jit
def adjusts(asked: ParamsRecord, history: History) -> bool:
    """Whether any of these steps may change a logit. If not, no copy of the row is made."""
    if asked.bias_ids.size > 0 or asked.allowed_ids.size > 0:
        return True
    if history.forbidden_ids.size > 0 or history.allowed_bits.size > 0:
        return True
    if asked.repetition != 1.0 and history.prompt_ids.size + history.output_ids.size > 0:
        return True
    return (asked.presence != 0.0 or asked.frequency != 0.0) and history.output_ids.size > 0


@jit
def ids_inside(asked: ParamsRecord, history: History, V: int) -> bool:
    """Whether all ids are of a vocabulary of V, and there is a bit for each of its ids, if there are any: another would
    be written into somebody else's memory.
    """
    outside = 0 < history.allowed_bits.size != (V + 31) // 32
    for ids in (asked.bias_ids, asked.allowed_ids, history.forbidden_ids, history.prompt_ids, history.output_ids):
        for token in ids:
            outside |= token < 0 or token >= V
    return outside == 0


@jit
def copy_row(logits: Floats, row: Floats) -> None:
    """row = logits, both [V]."""
    for i in range(logits.shape[0]):
        row[i] = logits[i]


@jit
def logit_bias(row: Floats, ids: Ints, values: Floats) -> None:
    """row[ids[i]] += values[i]."""
    for i in range(ids.size):
        row[ids[i]] += values[i]


@jit
def masks(row: Floats, allowed: Ints, forbidden: Ints, bits: Ints, kept: Floats) -> None:
    """-∞ for all but the allowed ids (none given: all are), for the forbidden ones, and where a bit is 0 (no bits
    given: none is).

    kept: [V or more] float32, written over.
    """
    if allowed.size > 0:
        for i in range(allowed.size):
            kept[i] = row[allowed[i]]
        for i in range(row.shape[0]):
            row[i] = -np.inf
        for i in range(allowed.size):
            row[allowed[i]] = kept[i]
    for token in forbidden:
        row[token] = -np.inf
    for word in range(bits.size):
        first, end = 32 * word, min(32 * word + 32, row.shape[0])
        if bits[word] == 0:  # most are, as a rule
            for i in range(first, end):
                row[i] = -np.inf
        elif bits[word] != -1:
            for i in range(first, end):
                if bits[word] >> (i - first) & 1 == 0:
                    row[i] = -np.inf


@jit
def repetition_penalty(row: Floats, penalty: float, prompt: Ints, output: Ints, counts: Ints) -> None:
    """l / penalty where l > 0, else l · penalty, once for each token of the prompt and the output; 1 changes nothing.

    A finite logit stays finite. counts: [V] int32, written over. Source: Keskar et al. 2019 (CTRL), section 4.1, and
    what became of it in use: a division alone would favour a token whose logit is below 0.
    """
    if penalty == 1.0:
        return
    p = np.float32(penalty)
    for ids in (prompt, output):
        for token in ids:
            counts[token] = 0
    for ids in (prompt, output):
        for token in ids:
            logit = row[token]
            if counts[token] == 0 and -FARTHEST <= logit <= FARTHEST:
                row[token] = min(max(logit / p if logit > 0 else logit * p, -FARTHEST), FARTHEST)
            counts[token] = 1


@jit
def count_penalties(row: Floats, presence: float, frequency: float, output: Ints, counts: Ints) -> None:
    """l - count · frequency - presence for each token of the output, where it stands count times; 0 and 0 change
    nothing. counts: [V] int32, written over.
    """
    if presence == 0.0 and frequency == 0.0:
        return
    once, each = np.float32(presence), np.float32(frequency)
    for token in output:
        counts[token] = 0
    for token in output:
        counts[token] += 1
    for token in output:
        if counts[token] > 0:
            row[token] = row[token] - np.float32(counts[token]) * each - once
            counts[token] = 0
