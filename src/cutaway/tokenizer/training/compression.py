"""How many bytes of a corpus a token of the learnt vocabulary stands for.

In: a tokenizer and the spans of a corpus. Out: bytes and tokens, counted by the tokenizer itself; of a large corpus, on
parts of it that lie evenly over the whole.
"""

from collections.abc import Callable, Sequence, Sized
from typing import NamedTuple

from cutaway.tokenizer.training.corpus import Span, read_span

PARTS = 8
CHARACTERS = 1 << 22  # encoded at most, of all parts together


class Compression(NamedTuple):
    """``bytes`` were written with ``tokens``. ``whole``: they are all of the corpus."""

    bytes: int
    tokens: int
    whole: bool


def measure(
    encode: Callable[[str], Sized],
    spans: Sequence[Span],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Compression:
    """Encode the corpus, or where it is large, the beginnings of ``PARTS`` of its spans."""
    chosen = [spans[i * len(spans) // PARTS] for i in range(PARTS)] if len(spans) > PARTS else spans
    whole = len(chosen) == len(spans)
    length = tokens = 0
    for done, span in enumerate(chosen):
        progress(done, len(chosen))
        text = read_span(span)
        part = text[: CHARACTERS // len(chosen)]
        whole = whole and part == text
        length += len(part.encode("utf-8"))
        tokens += len(encode(part))
    return Compression(length, tokens, whole)
