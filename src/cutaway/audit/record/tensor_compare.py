"""The values of a replay against those beside a record, row by row as they are computed.

In: rows of an open step; a recorded request, whose lines say in which files its values are. Out: the first that
differs.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.audit.record.operations import AFTER, Rows
from cutaway.audit.record.read_record import RecordedRequest
from cutaway.audit.record.tensor_files import folder_of
from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.formats.safetensors import open_safetensors
from cutaway.formats.tensor import Tensor

NUMBERS: Final[dict[str, np.dtype[Any]]] = {"F32": np.dtype(np.float32), "I8": np.dtype(np.int8)}


class _Part(NamedTuple):
    """Values of some positions of a choice."""

    first: int
    length: int
    tensors: dict[str, Tensor]


FIRST: Final = attrgetter("first")


class TensorCompare:
    """A ``recorder.RowKeeper`` that keeps nothing."""

    def __init__(self, record: Path) -> None:
        self._folder = folder_of(record)
        self._parts: dict[int, list[_Part]] = {}  # of each choice, by their first positions
        self.difference: str | None = None  # the first one

    def begin(self, request: RecordedRequest) -> None:
        """The request that is replayed next. Raises InvalidRequestError where a file of it is missing."""
        self.difference = None
        self._parts = {}
        for token in request.tokens:
            places = token.content.get("tensors")
            if not isinstance(places, list):
                raise InvalidRequestError(
                    f"line {token.number} has no list of tensors. The record is damaged.", "record"
                )
            for place in places:
                self._parts.setdefault(token.content["choice"], []).append(self._open(place))
        for parts in self._parts.values():
            parts.sort(key=FIRST)

    def _open(self, place: Any) -> _Part:
        try:
            name, digest, first, count = place
            path = self._folder / Path(str(name)).name
            content = path.read_bytes()
        except (TypeError, ValueError, OSError) as error:
            raise InvalidRequestError(
                f"values of a request can't be read ({error}). Keep {self._folder} beside the record.", "record"
            ) from None
        if hashlib.sha256(content).hexdigest() != digest:
            self.difference = self.difference or f"{path} was changed: its SHA-256 is not that in the record"
        try:
            return _Part(int(first), int(count), open_safetensors(path))
        except (ModelFileError, ValueError, TypeError) as error:
            self.difference = self.difference or f"{path} was changed: {error}"
            return _Part(0, 0, {})

    def take(self, request_id: str, choices: Sequence[int], rows: Rows) -> None:
        """Compare rows with what was recorded of these positions."""
        if self.difference is not None:
            return
        name = str(rows.operation)
        for part in self._parts_of(choices, rows.position, rows.position + len(rows.values)):
            if name not in part.tensors:
                continue
            tensor = part.tensors[name]
            recorded = tensor.stored.view(NUMBERS[tensor.block_type.name]).reshape(tensor.shape)
            start = part.first + part.length - 1 if rows.operation.name in AFTER else part.first
            first = max(start, rows.position)
            end = min(start + len(recorded), rows.position + len(rows.values))
            if first < end:
                own = rows.values[first - rows.position : end - rows.position]
                self.difference = _compare(name, first, recorded[first - start : end - start], own)
                if self.difference is not None:
                    return

    def _parts_of(self, choices: Sequence[int], first: int, end: int) -> Iterator[_Part]:
        """Those with some of these positions: among the parts of a long answer they are found, not looked for."""
        for choice in choices:
            parts = self._parts.get(choice, [])
            place = bisect_left(parts, end, key=FIRST)
            while place and parts[place - 1].first + parts[place - 1].length > first:
                place -= 1
                yield parts[place]

    def keep(self, request_id: str, choices: Sequence[int]) -> list[Any]:
        """Nothing is written."""
        return []

    def drop(self) -> None:
        """Nothing is kept."""


def _compare(name: str, position: int, recorded: npt.NDArray[Any], found: npt.NDArray[Any]) -> str | None:
    """The first number whose bits differ."""
    if recorded.shape != found.shape or recorded.dtype != found.dtype:
        return (
            f"{name} is {recorded.shape} {recorded.dtype} in the record, and {found.shape} {found.dtype} in the replay"
        )
    found = np.ascontiguousarray(found)
    whole = np.dtype(f"u{recorded.dtype.itemsize}")
    places = np.argwhere(recorded.view(whole) != found.view(whole))
    if not len(places):
        return None
    row, column = places[0]
    return (
        f"{name}, position {position + row}, number {column}: {recorded[row, column]!r} in the record, "
        f"{found[row, column]!r} in the replay; {len(places)} of {recorded.size} differ"
    )
