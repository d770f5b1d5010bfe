"""A line of a record: one JSON object whose last field is the hash of the line before it and of the line itself.

In: content and the hash that it follows. Out: bytes, and their hash; and back. The hash is over the line's bytes as
they are, so that nothing depends on how JSON is written.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cutaway.errors import InvalidRequestError

FORMAT: Final = 1
"""Of the record; another number is refused."""
FIRST_BYTES: Final = b'{"kind":"header"'
"""What every record begins with."""
HASH_HEX: Final = 64
_TAIL: Final = b',"hash":"'
sha256: Final = hashlib.sha256().copy
"""A new hash of nothing: a copy, in less time than OpenSSL takes to look the algorithm up."""
encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
"""Content as JSON in ASCII, without spaces. Raises ValueError where a number is none of JSON."""


class Line(NamedTuple):
    """A line that was read."""

    number: int  # in the file, from 1
    content: dict[str, Any]  # without its hash
    body: bytes  # what the hash is over, behind the hash that the line follows
    hash: str

    @property
    def kind(self) -> str:
        """What sort of line it is."""
        return str(self.content.get("kind"))


class BrokenLineError(InvalidRequestError):
    """A line is none of a record."""


def follow(previous: str, body: bytes) -> str:
    """The hash of a line: SHA-256, in hex, of the hash that it follows and its own bytes up to ``,"hash"``."""
    return hashlib.sha256(previous.encode("ascii") + body).hexdigest()


def write_line(content: Mapping[str, Any], previous: str) -> tuple[bytes, str]:
    """The line, with its end, and its hash. Raises ValueError where a number is none of JSON."""
    return bind(body_of(content), previous)


def body_of(content: Mapping[str, Any]) -> str:
    """The content as JSON, up to its last brace. Raises ValueError where a number is none of JSON."""
    return encode(content)[:-1]


def bind(body: str, previous: str) -> tuple[bytes, str]:
    """The line of a content that is JSON already, up to its last brace; and its hash."""
    hashed = sha256()
    hashed.update((previous + body).encode("ascii"))
    found = hashed.hexdigest()
    return f'{body},"hash":"{found}"}}\n'.encode("ascii"), found


def has_end(raw: bytes) -> bool:
    """Whether it ends as a line does: what was torn lacks that, since texts have no such quotes."""
    _, tail, end = raw.rpartition(_TAIL)
    text = end[:-2].decode("ascii", "replace")
    return bool(tail) and end[-2:] == b'"}' and len(text) == HASH_HEX and set(text) <= set("0123456789abcdef")


def read_line(raw: bytes, number: int, path: object) -> Line:
    """raw: without the end of the line. Raises BrokenLineError for whatever is no line of a record."""
    if not has_end(raw):
        raise BrokenLineError(
            f'{path}: line {number} does not end with its "hash"; it is no line of a record.', "record"
        )
    body, _, end = raw.rpartition(_TAIL)
    try:
        content = json.loads(body + b"}", object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BrokenLineError(
            f"{path}: line {number} is no JSON ({error}); it is no line of a record.", "record"
        ) from None
    if not isinstance(content, dict) or not isinstance(content.get("kind"), str):
        raise BrokenLineError(f'{path}: line {number} has no "kind"; it is no line of a record.', "record")
    return Line(number, content, body, end[:-2].decode("ascii"))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def exact(value: float | None) -> float | str | None:
    """A number as JSON keeps it exactly; "-inf", "inf" and "nan" as texts."""
    if value is None:
        return None
    number = float(value)
    return number if number - number == 0 else str(number)
