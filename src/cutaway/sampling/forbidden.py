"""The tokens that a step may not choose: those that would complete a bad word, and, while too few tokens were
generated, those that would end the answer.

In: the request's parameters, its bad words as ids, the ids generated so far. Out: the step's forbidden ids.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from cutaway.errors import InvalidRequestError
from cutaway.ops.cpu.arrays import Ints
from cutaway.sampling.history import NO_IDS
from cutaway.sampling.params import SamplingParams


class BadWords(NamedTuple):
    """Bad words as ids, ordered by what a step looks for."""

    single: frozenset[int]  # words of one token, forbidden in every step
    longer: dict[int, tuple[tuple[int, ...], ...]]  # by their last token but one


NO_BAD_WORDS = BadWords(frozenset(), {})


def bad_word_ids(words: Iterable[str] | None, encode: Callable[[str], Sequence[int]]) -> BadWords:
    """Each word as ids, with and without a space before it. encode: text to ids, without special tokens.

    A word is looked for as ``encode`` cuts it. A model can still write it in other pieces, or as a part of a longer
    token.
    """
    single: set[int] = set()
    longer: dict[int, dict[tuple[int, ...], None]] = {}
    for word in words or ():
        bare = word.lstrip(" ") or word
        for form in dict.fromkeys((bare, word, f" {bare}")):
            ids = tuple(encode(form))
            if not ids:
                raise InvalidRequestError(
                    f"bad_words has {word!r}, which this model's tokenizer turns into no token; a word needs at least "
                    "one. Leave it out.",
                    "bad_words",
                )
            if len(ids) == 1:
                single.update(ids)
            else:
                longer.setdefault(ids[-2], {})[ids] = None
    return BadWords(frozenset(single), {last: tuple(each) for last, each in longer.items()})


def stop_ids(params: SamplingParams, eos_ids: Iterable[int]) -> frozenset[int]:
    """The ids that end an answer: the model's own (eos_ids) unless ``ignore_eos``, and ``stop_token_ids``."""
    return frozenset(() if params.ignore_eos else eos_ids) | frozenset(params.stop_token_ids or ())


def forbidden_ids(
    params: SamplingParams, bad_words: BadWords, output_ids: Sequence[int] | Ints, stop_ids: Iterable[int]
) -> Ints:
    """[B] int32, ascending: what the token after ``output_ids`` may not be.

    The stop ids while fewer than ``min_tokens`` were generated; of each bad word the last id, if the ids before it are
    the last ones generated (the prompt does not count).
    """
    generated = len(output_ids)
    if generated >= params.min_tokens and bad_words == NO_BAD_WORDS:
        return NO_IDS
    forbidden = set(bad_words.single)
    if generated < params.min_tokens:
        forbidden.update(stop_ids)
    if generated > 0:
        for word in bad_words.longer.get(int(output_ids[-1]), ()):
            before = word[:-1]
            if tuple(output_ids[-len(before) :]) == before:
                forbidden.add(word[-1])
    return np.array(sorted(forbidden), np.int32)
