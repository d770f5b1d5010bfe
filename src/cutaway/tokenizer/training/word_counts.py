"""Counting words: what training sees of a corpus is how often each word occurs in it.

In: spans of a corpus, and a way to cut text into words. Out: word → count. Several processes count spans, each in a
counter of its own; the sum is the same however they share them.
"""

import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias

from cutaway.tokenizer.training.corpus import Span, read_span
from cutaway.tokenizer.words import cut_words, isolate

Cut: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""How text is cut, in a form that travels to other processes: patterns, one after the other (``isolate``), and before
them replacements of texts by texts.
"""


def count_words(
    spans: Sequence[Span], cut: Cut, processes: int = 1, progress: Callable[[int, int], None] = lambda done, total: None
) -> Counter[str]:
    """How often each word occurs.

    Args:
        processes: that count; 1 counts in this one.
        progress: told how many bytes of how many are counted.

    Raises:
        InvalidRequestError: a span is no UTF-8.
    """
    total = sum(span.stop - span.start for span in spans)
    words: Counter[str] = Counter()
    done = 0
    with _mapper(min(processes, len(spans))) as count_each:
        for span, counted in zip(spans, count_each(partial(_count_span, cut), spans), strict=True):
            words.update(counted)
            done += span.stop - span.start
            progress(done, total)
    return words


def _count_span(cut: Cut, span: Span) -> Counter[str]:
    patterns, replacements = cut
    text = read_span(span)
    for old, new in replacements:
        text = text.replace(old, new)
    return Counter(cut_words(text, map(isolate, patterns)))


_Map: TypeAlias = Callable[[Callable[[Span], Counter[str]], Sequence[Span]], Iterator[Counter[str]]]


@contextmanager
def _mapper(processes: int) -> Iterator[_Map]:
    """``map``, by several processes; an interrupt ends them with this one."""
    if processes <= 1:
        yield map
        return
    # Copies of this process: new ones would run a user's main module again. An interrupt within a fork would be lost in
    # the handlers that Python calls there, so it waits.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        pool = multiprocessing.get_context("fork").Pool(processes, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    with pool:
        yield pool.imap
