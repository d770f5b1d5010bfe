"""The values of a replay against those beside a record, row by row as they are computed.

In: rows of an open step; a recorded request, whose lines say in which files its values are. Out: the first that
differs. Every row that was computed must have its values, and all values must be of such a row.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.audit.record.operations import AFTER, Operation, Rows
from cutaway.audit.record.recorded import RecordedRequest
from cutaway.audit.record.tensor_files import folder_of
from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.formats.safetensors import open_safetensors
from cutaway.formats.tensor import Tensor

NUMBERS: Final[dict[str, np.dtype[Any]]] = {"F32": np.dtype(np.float32), "I8": np.dtype(np.int8)}


class _Part(NamedTuple):
    """Values of some positions of a choice."""

    path: Path
    first: int
    length: int
    values: dict[str, npt.NDArray[Any]]  # [length, width]; of what comes behind ``take_rows`` [1, width]
    left: dict[str, int]  # rows that have not been compared

    def start(self, operation: Operation) -> int:
        """The position of its first row of an operation."""
        return self.first + self.length - 1 if operation.name in AFTER else self.first


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
        prompt = request.begin.content.get("prompt_ids")
        ends: dict[int, int] = {}  # of each choice's values so far
        for token in request.tokens:
            places, choice = token.content.get("tensors"), token.content["choice"]
            if not isinstance(places, list):
                raise InvalidRequestError(
                    f"line {token.number} has no list of tensors. The record is damaged.", "record"
                )
            for place in places:
                part = self._open(place)
                if part.first != ends.get(choice, 0):
                    self._blame(f"{part.path} has values from position {part.first} on, and not {ends.get(choice, 0)}")
                ends[choice] = part.first + part.length
                self._parts.setdefault(choice, []).append(part)
            wanted = len(prompt) + token.content["token"] if isinstance(prompt, list) else 0
            if ends.get(choice, 0) != wanted:
                self._blame(f"line {token.number} has values up to position {ends.get(choice, 0)}, and not {wanted}")
        for parts in self._parts.values():
            parts.sort(key=FIRST)

    def end(self) -> None:
        """The request was replayed: what was compared with nothing is a difference."""
        for part in (each for parts in self._parts.values() for each in parts):
            for name, count in part.left.items():
                if count:
                    self._blame(f"{part.path}: {name} has {count} rows that the replay has not")

    def _blame(self, what: str) -> None:
        self.difference = self.difference or what

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
            self._blame(f"{path} was changed: its SHA-256 is not that in the record")
        try:
            values = {name: _rows(each) for name, each in open_safetensors(path).items()}
            return _Part(path, int(first), int(count), values, {name: len(values[name]) for name in values})
        except (ModelFileError, KeyError, ValueError, TypeError, OverflowError) as error:
            self._blame(f"{path} was changed: {error}")
            return _Part(path, 0, 0, {}, {})

    def take(self, request_id: str, choices: Sequence[int], rows: Rows) -> None:
        """Compare rows with what was recorded of these positions."""
        if self.difference is not None:
            return
        name = str(rows.operation)
        for part in self._parts_of(choices, rows.position, rows.position + len(rows.values)):
            start = part.start(rows.operation)
            first, end = max(start, rows.position), min(part.first + part.length, rows.position + len(rows.values))
            if first >= end:
                continue
            recorded = part.values.get(name)
            if recorded is None or len(recorded) != part.first + part.length - start:
                self._blame(f"{name}, position {first}: {part.path} has no values of it, or of another number of rows")
                return
            own = rows.values[first - rows.position : end - rows.position]
            self.difference = _compare(name, first, recorded[first - start : end - start], own)
            if self.difference is not None:
                return
            part.left[name] -= end - first

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


def _rows(tensor: Tensor) -> npt.NDArray[Any]:
    """Its numbers [n, width]. Raises KeyError or ValueError where they are none of a record."""
    if len(tensor.shape) != 2:
        raise ValueError(f"{tensor.name} is no table of rows")
    return tensor.stored.view(NUMBERS[tensor.block_type.name]).reshape(tensor.shape)


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
