"""The values of operations, beside a record: a safetensors file for each part of a request that a step computed.

In: rows of an open step. Out: files in the folder ``FILE.tensors``, each with an array ``[n, width]`` for each
operation, named as ``layers.3.attention`` or ``embed``; and where they are, for the record.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cutaway.audit.record.operations import Rows
from cutaway.audit.safetensors_head import safetensors_head
from cutaway.errors import CapacityError, InvalidRequestError
from cutaway.hub.whole_file import write_whole


def folder_of(record: Path) -> Path:
    """Where the values of a record are."""
    return record.with_name(record.name + ".tensors")


class TensorFiles:
    """Keeps the rows of a step until it counts, then writes them."""

    def __init__(self, record: Path) -> None:
        """Raises InvalidRequestError where the folder can't be made."""
        self._folder = folder_of(record)
        self._session = ""
        self._rows: dict[tuple[str, int], dict[str, npt.NDArray[Any]]] = {}
        self._first: dict[tuple[str, int], int] = {}
        try:
            self._folder.mkdir(0o700, exist_ok=True)
        except OSError as error:
            raise InvalidRequestError(
                f"the folder {self._folder} can't be made ({error.strerror}). Name a record in a folder that can be "
                "written.",
                "record",
            ) from None

    def open(self, header: str) -> None:
        """header: its hash, by which the files of a session are told from another's."""
        self._session = header[:8]

    def take(self, request_id: str, choices: Sequence[int], rows: Rows) -> None:
        """Rows of an operation."""
        place = request_id, choices[0]
        self._rows.setdefault(place, {})[str(rows.operation)] = np.array(rows.values)
        self._first.setdefault(place, rows.position)

    def drop(self) -> None:
        """What was taken does not count."""
        self._rows.clear()
        self._first.clear()

    def keep(self, request_id: str, choices: Sequence[int]) -> list[Any]:
        """Write a piece's rows: ``[name, SHA-256, first position, rows]``, or nothing where none are new. Raises
        CapacityError where they can't be written.
        """
        place = request_id, choices[0]
        arrays, first = self._rows.pop(place, None), self._first.pop(place, 0)
        if not arrays:
            return []
        content = b"".join([safetensors_head(arrays)[0], *(each.tobytes() for each in arrays.values())])
        name = f"{self._session}-{request_id}-{choices[0]}-{first}.safetensors"
        try:
            write_whole(self._folder / name, content)
        except OSError as error:
            raise CapacityError(f"{self._folder / name} can't be written ({error.strerror})") from None
        count = max(len(each) for each in arrays.values())
        return [[name, hashlib.sha256(content).hexdigest(), first, count]]
