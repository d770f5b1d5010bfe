"""What was read of a record: an index of its requests, small beside the file, and each request's lines when they are
wanted.

In: a file that can be read at any place, and where in it each request's lines are; lines of several requests stand
between one another. Out: one request after the other, whole. That its lines are those that were indexed is seen from
their hashes.
"""

import os
import shutil
import tempfile
import weakref
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from cutaway.audit.record.lines import FIRST_BYTES, Line, follow, read_line
from cutaway.errors import InvalidRequestError

LONGEST_LINE: Final = 1 << 28  # bytes: of a prompt's scores there may be some ten millions


class LineFile:
    """A record's file, open as long as somebody has this object. What comes by a pipe is kept beside, for so long."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises InvalidRequestError where it can't be read, or doesn't begin as a record does."""
        self.path = Path(path)
        try:
            with self.path.open("rb") as given:
                first = given.read(len(FIRST_BYTES))
                if first and first != FIRST_BYTES:  # told before all of it is read, however long it is
                    raise InvalidRequestError(
                        f"{self.path}: its first line does not begin with {FIRST_BYTES.decode()}; it is no record.",
                        "record",
                    )
                if given.seekable():
                    self._file: BinaryIO = self.path.open("rb")
                else:
                    self._file = tempfile.TemporaryFile()  # noqa: SIM115 – closed with this object
                    self._file.write(first)
                    shutil.copyfileobj(given, self._file)
        except InvalidRequestError:
            raise
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise InvalidRequestError(f"{self.path} can't be read ({why}). Name a record's file.", "record") from None
        weakref.finalize(self, self._file.close)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """All of them with their places; only the last may lack its end, if it is torn."""
        place, number = 0, 1
        while raw := self._read(place, number):
            yield place, raw
            place, number = place + len(raw), number + 1

    def line(self, place: int, number: int) -> Line:
        """The one at this place. Raises BrokenLineError where it is none of a record."""
        return read_line(self._read(place, number).removesuffix(b"\n"), number, self.path)

    def _read(self, place: int, number: int) -> bytes:
        try:
            self._file.seek(place)
            raw = self._file.readline(LONGEST_LINE + 1)
        except OSError as error:
            raise InvalidRequestError(
                f"{self.path} can't be read any further ({error.strerror}). Copy it, and try again.", "record"
            ) from None
        if len(raw) > LONGEST_LINE:
            raise InvalidRequestError(
                f"{self.path}: line {number} has more than {LONGEST_LINE:,} bytes; it is no line of a record.", "record"
            )
        return raw


@dataclass
class RecordedRequest:
    """One request's lines, in their order."""

    begin: Line
    lines: list[Line] = field(default_factory=list)  # its scores and tokens
    end: Line | None = None  # None where the engine ended before the request

    @property
    def id(self) -> str:
        """Unique within its session."""
        return str(self.begin.content.get("request"))

    @property
    def tokens(self) -> list[Line]:
        """One for each token of each choice."""
        return [each for each in self.lines if each.kind == "token"]


@dataclass
class RequestIndex:
    """Where one request's lines are, and what is told of it without them."""

    file: LineFile
    header: str  # the hash that its first line follows
    id: str  # unique within its session
    has_form: bool  # its outputs are structured
    last: str = ""  # the hash of its last line; of one that has ended, the root
    places: "array[int]" = field(default_factory=lambda: array("Q"))  # of its lines, in bytes
    numbers: "array[int]" = field(default_factory=lambda: array("Q"))  # of its lines, from 1
    lengths: dict[int, int] = field(default_factory=dict)  # how many tokens each choice has
    has_scores: bool = False
    has_end: bool = False  # False where the engine ended before the request
    has_receipt: bool = False
    time: str | None = None  # of its end, as the record says
    reason: str | None = None  # of its end

    @property
    def tokens(self) -> int:
        """Of all choices."""
        return sum(self.lengths.values())

    def add(self, place: int, line: Line) -> None:
        """A further line of it."""
        self.places.append(place)
        self.numbers.append(line.number)
        self.last = line.hash

    def read(self) -> RecordedRequest:
        """Its lines. Raises InvalidRequestError where they are not those that were indexed, or never followed."""
        lines, previous = [], self.header
        for place, number in zip(self.places, self.numbers, strict=True):
            line = self.file.line(place, number)
            if follow(previous, line.body) != line.hash:
                break
            lines.append(line)
            previous = line.hash
        if previous != self.last:
            raise InvalidRequestError(
                f"{self.file.path}: the lines of request {self.id} are not those that were there at first. Verify a "
                "copy that nobody writes to.",
                "record",
            )
        begin, *others = lines
        end = others.pop() if self.has_end else None
        return RecordedRequest(begin, others, end)


@dataclass
class Session:
    """What one engine has written."""

    header: Line
    by_id: dict[str, RequestIndex] = field(default_factory=dict)  # in the order in which they began

    @property
    def requests(self) -> list[RequestIndex]:
        """All of them."""
        return list(self.by_id.values())


@dataclass
class RecordContent:
    """A whole file."""

    path: Path
    sessions: list[Session] = field(default_factory=list)
    torn: list[int] = field(default_factory=list)  # numbers of lines that were not written to their ends
    changed: str | None = None  # what doesn't follow from the lines before it, the first; None where all does
    raw_receipts: list[tuple[int, bytes]] = field(default_factory=list)  # with the numbers of their lines

    @property
    def receipts(self) -> Iterator[Line]:
        """All of them, in their order."""
        return (read_line(raw, number, self.path) for number, raw in self.raw_receipts)
