"""The corpus: text files, cut into spans that can be read one by one, by several processes.

In: paths. Out: spans of bytes. A span ends behind a line end between two characters that are no white space, where
every pre-tokenizer cuts, too: so the words of all spans are the words of the files. Where the spans end depends on the
files alone, not on who reads them.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cutaway.errors import InvalidRequestError

SPAN_BYTES = 1 << 20  # of a span, up to the next place where it may end
LONGEST_CHARACTER = 4  # bytes


class Span(NamedTuple):
    """The bytes ``start`` to ``stop`` of a file."""

    path: Path
    start: int
    stop: int


def spans_of(paths: Iterable[Path], span_bytes: int = SPAN_BYTES) -> list[Span]:
    """The spans of all files, in order.

    Raises:
        InvalidRequestError: there is no file, or one can't be read.
    """
    spans: list[Span] = []
    for path in paths:
        try:
            spans += _spans_of_file(path, span_bytes)
        except OSError as error:
            raise InvalidRequestError(f"{path} can't be read ({error.strerror}). Check the path.", "corpus") from error
    if not spans:
        raise InvalidRequestError("the corpus is empty; a vocabulary needs text to learn from.", "corpus")
    return spans


def read_span(span: Span) -> str:
    """The text of a span.

    Raises:
        InvalidRequestError: it is no UTF-8.
    """
    with span.path.open("rb") as file:
        file.seek(span.start)
        data = file.read(span.stop - span.start)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"{span.path} is not UTF-8 text: byte {span.start + error.start} is {data[error.start]:#04x}.", "corpus"
        ) from error


def _spans_of_file(path: Path, span_bytes: int) -> list[Span]:
    spans: list[Span] = []
    start = 0
    with path.open("rb") as file:
        data = b""
        while block := file.read(span_bytes):
            data += block
            end = _last_end(data)
            if end:
                spans.append(Span(path, start, start + end))
                start += end
                data = data[end:]
        if data:
            spans.append(Span(path, start, start + len(data)))
    return spans


def _last_end(data: bytes) -> int:
    """The last place where a span may end; 0 if there is none."""
    i = data.rfind(b"\n", 0, -1)
    while i > 0:
        before = data[max(0, i - LONGEST_CHARACTER) : i].decode("utf-8", "ignore")[-1:]
        behind = data[i + 1 : i + 1 + LONGEST_CHARACTER].decode("utf-8", "ignore")[:1]
        if before and behind and not before.isspace() and not behind.isspace():
            return i + 1
        i = data.rfind(b"\n", 0, i)
    return 0
