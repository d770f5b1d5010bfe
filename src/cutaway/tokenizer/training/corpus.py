"""The corpus: text files, cut into spans that can be read one by one, by several processes.

In: paths. Out: spans of bytes. A span ends behind a line end between two characters that are no white space, where
every pre-tokenizer cuts, too: so the words of all spans are the words of the files. Where the spans end depends on the
files alone, not on who reads them.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import regex  # type: ignore[import-untyped]

from cutaway.errors import InvalidRequestError

SPAN_BYTES = 1 << 20  # of a span, up to the next place where it may end
LONGEST_CHARACTER = 4  # bytes
AROUND_END = 2 * LONGEST_CHARACTER + 1  # the line end where a span may end, and a character on either side


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
        with _readable(path):
            if path.is_dir():
                raise InvalidRequestError(
                    f"{path} is a folder; give the files in it, as {path / '*.md'} or {path / '*.txt'}.", "corpus"
                )
            if path.exists() and not path.is_file():
                raise InvalidRequestError(
                    f"{path} is a pipe or device; a corpus is read twice, so it must be a file. Write it to one, or "
                    "give - and the text as standard input.",
                    "corpus",
                )
            spans += _spans_of_file(path, span_bytes)
    if not spans:
        raise InvalidRequestError("the corpus is empty; a vocabulary needs text to learn from.", "corpus")
    return spans


def read_span(span: Span) -> str:
    """The text of a span.

    Raises:
        InvalidRequestError: it can't be read any more, or is no UTF-8.
    """
    with _readable(span.path), span.path.open("rb") as file:
        file.seek(span.start)
        data = file.read(span.stop - span.start)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"{span.path} is not UTF-8 text: byte {span.start + error.start} is {data[error.start]:#04x}.", "corpus"
        ) from error


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidRequestError(f"{path} can't be read ({error.strerror}). Check the path.", "corpus") from error


def _spans_of_file(path: Path, span_bytes: int) -> list[Span]:
    """Spans of about so many bytes, each ending where no word can go on."""
    spans: list[Span] = []
    start = read = 0
    with path.open("rb") as file:
        seen = b""  # the last bytes of the blocks before, where no span ends
        while block := file.read(span_bytes):
            data = seen + block
            end = _last_end(data)
            if end:
                stop = read - len(seen) + end
                spans.append(Span(path, start, stop))
                start = stop
            read += len(block)
            seen = data[max(end, len(data) - AROUND_END) :]
        if start < read:
            spans.append(Span(path, start, read))
    return spans


# From right to left. White space of ASCII is told so far.
_END = regex.compile(rb"(?r)[^\s\x1c-\x1f]\n(?=[^\s\x1c-\x1f])")


def _last_end(data: bytes) -> int:
    """The last place where a span may end; 0 if there is none."""
    for match in _END.finditer(data):
        i: int = match.end() - 1
        before = data[max(0, i - LONGEST_CHARACTER) : i].decode("utf-8", "ignore")[-1:]
        behind = data[i + 1 : i + 1 + LONGEST_CHARACTER].decode("utf-8", "ignore")[:1]
        if before and behind and not before.isspace() and not behind.isspace():
            return i + 1
    return 0
