"""Sampling in Python integers and NumPy float64: slow, obvious, and sharing no code with the compiled steps."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
MASK = 0xFFFFFFFF


def philox(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Philox4x32-10 as the paper's figure 2 has it, in Python integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        product_0, product_1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [product_1 >> 32 ^ c[1] ^ k[0], product_1 & MASK, product_0 >> 32 ^ c[3] ^ k[1], product_0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return tuple(c)


def noise_word(seed: int, choice: int, position: int, token: int) -> int:
    """The random word of one id, by the documented layout."""
    block, within = divmod(token, 64)
    word, lane = divmod(within, 16)
    return philox((16 * block + lane, position, choice, 0x746F6B6E), (seed & MASK, seed >> 32 & MASK))[word]


def gumbel(words: npt.ArrayLike) -> Array:
    v = ((np.asarray(words, np.uint64) >> np.uint64(1)).astype(np.float64) + 0.5) / 2.0**31
    return -np.log(-np.log1p(-v))


def order(logits: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """All ids: the larger logit first, the lower id first among equals."""
    values = np.asarray(logits, np.float64)
    return np.lexsort((np.arange(values.size), -values))


def softmax(logits: npt.ArrayLike, temperature: float = 1.0) -> Array:
    values = np.asarray(logits, np.float64)
    with np.errstate(over="ignore"):
        weights = np.exp((values - values.max()) / temperature)
    return weights / weights.sum()


def log_softmax(logits: npt.ArrayLike) -> Array:
    values = np.asarray(logits, np.float64)
    shifted = values - values.max()
    return shifted - np.log(np.exp(shifted).sum())


def keep_first(probabilities: Array, count: int) -> Array:
    kept = np.zeros_like(probabilities)
    first = order(probabilities)[:count]
    kept[first] = probabilities[first]
    return kept / kept.sum()


def top_k(probabilities: Array, k: int) -> Array:
    return keep_first(probabilities, k if k > 0 else probabilities.size)


def top_p(probabilities: Array, p: float) -> Array:
    if p >= 1:
        return probabilities
    ranked = probabilities[order(probabilities)]
    before = np.concatenate([[0.0], np.cumsum(ranked)[:-1]])
    return keep_first(probabilities, max(1, int((before < p).sum())))


def min_p(probabilities: Array, p: float) -> Array:
    count = int((probabilities >= p * probabilities.max()).sum())
    return keep_first(probabilities, max(1, count))


def filtered(logits: npt.ArrayLike, temperature: float, k: int, p: float, m: float) -> Array:
    """The distribution that is drawn from, of logits that are adjusted."""
    return min_p(top_p(top_k(softmax(logits, temperature), k), p), m)


def logit_bias(logits: Array, biases: Mapping[int, float]) -> Array:
    result = logits.copy()
    for token, bias in biases.items():
        result[token] += bias
    return result


def masks(
    logits: Array, allowed: Iterable[int] | None, forbidden: Iterable[int], grammar: Iterable[int] | None = None
) -> Array:
    kept = set(range(logits.size)) if allowed is None else set(allowed)
    kept -= set(forbidden)
    if grammar is not None:
        kept &= set(grammar)
    return np.array([value if token in kept else -np.inf for token, value in enumerate(logits)])


def repetition_penalty(logits: Array, penalty: float, prompt: Iterable[int], output: Iterable[int]) -> Array:
    result = logits.copy()
    for token in {*prompt, *output}:
        result[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    return result


def count_penalties(logits: Array, presence: float, frequency: float, output: Iterable[int]) -> Array:
    result = logits.copy()
    for token, count in Counter(output).items():
        result[token] -= count * frequency + presence
    return result


class Asked(NamedTuple):
    """All that the steps depend on."""

    bias: Mapping[int, float] = {}
    allowed: Sequence[int] | None = None
    forbidden: Sequence[int] = ()
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    temperature: float = 1.0
    k: int = 0
    p: float = 1.0
    m: float = 0.0
    prompt: Sequence[int] = ()
    output: Sequence[int] = ()


ORDER = ("logit_bias", "masks", "repetition", "counts", "temperature", "top_k", "top_p", "min_p")
"""The declared order; the penalties are two of its steps."""
STEPS: dict[
    str, Callable[[Array, Asked], Array]
] = {  # of logits, -∞ for what is dropped, so that any order is possible
    "logit_bias": lambda x, a: logit_bias(x, a.bias),
    "masks": lambda x, a: masks(x, a.allowed, a.forbidden),
    "repetition": lambda x, a: repetition_penalty(x, a.repetition, a.prompt, a.output),
    "counts": lambda x, a: count_penalties(x, a.presence, a.frequency, a.output),
    "temperature": lambda x, a: x / a.temperature,
    "top_k": lambda x, a: where_kept(x, top_k(softmax(x), a.k)),
    "top_p": lambda x, a: where_kept(x, top_p(softmax(x), a.p)),
    "min_p": lambda x, a: where_kept(x, min_p(softmax(x), a.m)),
}


def where_kept(logits: Array, probabilities: Array) -> Array:
    return np.where(probabilities > 0, logits, -np.inf)


def trace(logits: npt.ArrayLike, asked: Asked, order: Sequence[str] = ORDER) -> dict[str, Array]:
    """The logits after each step, by its name, in that order."""
    row = np.array(logits, np.float64)
    return {name: (row := STEPS[name](row, asked)) for name in order}
