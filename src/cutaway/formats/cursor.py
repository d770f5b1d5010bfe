"""Cursor: reads the fields of a binary file one after the other, never past its end.

In: the bytes of a file and the name of the field to be read next. Out: integers, strings and the starts of
byte ranges that are known to lie inside the file. All sizes are Python integers, which don't wrap.
"""

import struct
from mmap import mmap
from pathlib import Path

from cutaway.errors import ModelFileError

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


def shown(text: str | bytes) -> str:
    """``text`` from a file as it may appear in a message: quoted, escaped and short."""
    return ascii(text) if len(text) <= 80 else ascii(text[:80]) + "…"


class Cursor:
    """A position in ``data``, the ``size`` bytes of the little-endian file ``path``."""

    __slots__ = ("data", "path", "position", "size")

    def __init__(self, path: Path, data: mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.position = 0

    @property
    def remaining(self) -> int:
        """Bytes from the position to the end of the file."""
        return self.size - self.position

    def error(self, field: str, found: str, limit: str, remedy: str | None = None) -> ModelFileError:
        """The error for ``field``: what was ``found`` there, what the ``limit`` is, and a remedy."""
        remedy = remedy or "The file is damaged or was written by a faulty tool: download or convert it again."
        return ModelFileError(f"{self.path}: {field} is {found}; {limit}. {remedy}")

    def skip(self, nbytes: int, field: str) -> int:
        """Move past ``nbytes`` bytes that make up ``field``; returns where they start."""
        start = self.position
        if nbytes > self.size - start:
            raise self.error(
                field,
                f"{nbytes} bytes long at offset {start}",
                f"the file ends after {self.size} bytes",
                "The file is truncated or damaged: download it again.",
            )
        self.position = start + nbytes
        return start

    def u32(self, field: str) -> int:
        """An unsigned integer of 4 bytes, little-endian."""
        value: int = _U32.unpack_from(self.data, self.skip(4, field))[0]
        return value

    def u64(self, field: str) -> int:
        """An unsigned integer of 8 bytes, little-endian."""
        value: int = _U64.unpack_from(self.data, self.skip(8, field))[0]
        return value

    def string(self, field: str) -> str:
        """A UTF-8 string: its length in bytes as uint64, then its bytes."""
        nbytes = self.u64(f"length of {field}")
        start = self.skip(nbytes, field)
        raw = self.data[start : start + nbytes]
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise self.error(field, shown(raw), f"it must be UTF-8 ({error.reason} at byte {error.start})") from None

    def name(self, field: str, max_bytes: int) -> str:
        """A string of 1 to ``max_bytes`` bytes."""
        start = self.position
        nbytes = self.u64(f"length of {field}")
        if not 1 <= nbytes <= max_bytes:
            raise self.error(field, f"{nbytes} bytes long", f"allowed are 1 to {max_bytes} bytes")
        self.position = start
        return self.string(field)

    def check_count(self, field: str, count: int, bytes_each: int, maximum: int | None = None) -> int:
        """``count``, when that many items of at least ``bytes_each`` bytes can follow in the file."""
        fitting = self.remaining // bytes_each
        if maximum is not None and count > maximum:
            raise self.error(field, str(count), f"at most {maximum} are allowed")
        if count > fitting:
            raise self.error(
                field,
                str(count),
                f"the remaining {self.remaining} bytes of the file hold at most {fitting}",
                "The file is truncated or damaged: download it again.",
            )
        return count
