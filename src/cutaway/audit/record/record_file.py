"""The record's file: lines are added to its end, those of a step by one write, each bound to the one it follows.

In: the contents of lines, or lines. Out: a file of JSON lines. A line that can't be written ends the record: nothing is
written after it, so that the chain has no gap, and whoever asks is told.
"""

import fcntl
import logging
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from cutaway.audit.record.lines import FIRST_BYTES, BrokenLineError, read_line, write_line
from cutaway.errors import CapacityError, InvalidRequestError

LOG: Final = logging.getLogger("cutaway.record")
MODE: Final = 0o600  # of a new file: it has what everybody asked, and was answered
TAIL: Final = 1 << 16  # bytes that are read at a time, from the end on


class Link(NamedTuple):
    """Where a chain has come to."""

    hash: str = ""  # of its last line
    number: int = 0  # of receipts so far


class RecordFile:
    """One process writes to it at a time, which a lock on the file sees to.

    ``hash`` fields bind each line to the one before it of the same chain: a request's lines to one another and to the
    session's header; receipts, and headers, to the receipt or header before them in the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises InvalidRequestError where it can't be written, or holds something else."""
        self.path = Path(path)
        self.error: str | None = None  # why nothing is written any more
        self._begun = False  # there is a header
        try:
            # Without waiting: what is no file is refused below, and to open it may take for ever.
            how = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            self._file = os.open(self.path, how, MODE)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise InvalidRequestError(
                f"the record {self.path} can't be written ({why}). Name a file in a folder that can be written.",
                "record",
            ) from None
        try:
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise InvalidRequestError(
                    f"the record {self.path} is no regular file; a pipe or a device keeps nothing, and a pipe that "
                    "nobody reads from stops all requests. Name a file.",
                    "record",
                )
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._link = self._last_link()
        except BlockingIOError:
            self.close()
            raise InvalidRequestError(
                f"the record {self.path} is being written by another engine. Name another file.", "record"
            ) from None
        except OSError as error:
            self.close()
            raise InvalidRequestError(
                f"the record {self.path} can't be read ({error.strerror}). Name a file.", "record"
            ) from None
        except BaseException:
            self.close()
            raise

    @property
    def link(self) -> Link:
        """Of the chain of headers and receipts."""
        return self._link

    def begin(self, content: Mapping[str, Any]) -> str:
        """Write a header. Out: its hash. Raises CapacityError where even this can't be written."""
        header = {**content, "previous": self._link.hash}
        found = self._write(header, self._link.hash, "its header")
        if self.error is not None:
            raise CapacityError(f"{self.error}. Make room, or name another file.")
        self._link = Link(found, self._link.number)
        self._begun = True
        return found

    def add(self, content: Mapping[str, Any], previous: str, what: str) -> str:
        """Write a line of a request. Out: its hash. what: for the error, if it is the first that can't be written."""
        return self._write(content, previous, what)

    def add_receipt(self, content: Mapping[str, Any], what: str) -> str:
        """Write a receipt, which has ``number`` and ``previous`` of the next one. Out: its hash."""
        found = self._write(content, self._link.hash, what)
        if self.error is None:
            self._link = Link(found, self._link.number + 1)
        return found

    def _write(self, content: Mapping[str, Any], previous: str, what: str) -> str:
        if self.error is not None:
            return ""
        line, found = write_line(content, previous)
        self.write([line], lambda _: what)
        return found

    def write(self, lines: Sequence[bytes], what: Callable[[int], str]) -> None:
        """Write lines that are bound already, by one call. what: names a line, for the error, if it is the first that
        can't be written.
        """
        if self.error is not None:
            return
        content = b"".join(lines)
        try:
            left = os.write(self._file, content)
        except OSError as error:
            self.stop(f"ended before {what(0)} ({error.strerror})")
            return
        if left != len(content):
            whole = 0
            while left >= len(lines[whole]):
                left -= len(lines[whole])
                whole += 1
            self.stop(
                f"ended before {what(whole)} (there was room for {'a part of the line' if left else 'no more'})", left
            )

    def stop(self, how: str, written: int = 0) -> None:
        """Nothing more is written; the bytes that there are of a line are taken away, if that can be done."""
        if self.error is not None:
            return
        self.error = f"the record {self.path} {how}"
        if self._begun:
            LOG.error("%s. Requests go on without it.", self.error)
        if written:
            try:
                os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            except OSError:
                LOG.error("the last line of %s is torn.", self.path)

    def _last_link(self) -> Link:
        """Of a file that goes on, that of its last header or receipt. A torn last line gets an end."""
        end = os.fstat(self._file).st_size
        known = os.pread(self._file, len(FIRST_BYTES), 0) == FIRST_BYTES  # else it is not read, however long it is
        tail, start = b"", end if known else 0
        while start > 0:
            size = min(TAIL + len(tail), start)
            start -= size
            tail = os.pread(self._file, size, start) + tail
            lines = tail.split(b"\n")
            whole = lines[1:-1] if start else lines[:-1]
            for raw in reversed(whole):
                if b'"kind":"header"' in raw or b'"kind":"receipt"' in raw:
                    found = self._link_of(raw)
                    if found is not None:
                        if lines[-1]:
                            LOG.warning("the last line of %s was torn; the record goes on after it.", self.path)
                            os.write(self._file, b"\n")
                        return found
        if end:
            raise InvalidRequestError(
                f"{self.path} is there, and is no record. Name another file, or one that is not there yet.", "record"
            )
        return Link()

    def _link_of(self, raw: bytes) -> Link | None:
        try:
            line = read_line(raw, 0, self.path)
        except BrokenLineError:
            return None
        number = line.content.get("number" if line.kind == "receipt" else "receipts")
        return Link(line.hash, number) if line.kind in ("header", "receipt") and isinstance(number, int) else None

    def close(self) -> None:
        """Let go of the file. Closing again does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
