"""A trace on disk: what was tapped of one request, as tensors that other programs read, and lines that say where.

In: a request's output with its taps. Out: a folder with ``tensors.safetensors`` and ``trace.jsonl``. It has its name
when it is whole: until then it is a hidden folder beside, which an error or an interruption takes away.
"""

import json
import os
import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cutaway.audit.taps.results import Taps
from cutaway.errors import CutawayError, InvalidRequestError

TENSORS: Final = "tensors.safetensors"
LINES: Final = "trace.jsonl"
FORMAT: Final = 1
ALIGNMENT: Final = 8  # of the first tensor in the file
DTYPES: Final[Mapping[str, str]] = {"float32": "F32", "float16": "F16", "int8": "I8", "int32": "I32"}
"""safetensors' names."""


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to be filled, which becomes ``path`` at the end of the block, or is gone if that fails.

    Raises InvalidRequestError if there is something already, CutawayError for what can't be written.
    """
    path = Path(os.path.abspath(path))
    hidden = path.with_name(f".{path.name}.{os.getpid()}.part")
    if path.exists():
        raise InvalidRequestError(
            f"{path} exists; a trace is never written over. Take it away, or name another.", "out"
        )
    try:
        hidden.mkdir(parents=True)
        try:
            yield hidden
            os.rename(hidden, path)
        except BaseException:
            shutil.rmtree(hidden, ignore_errors=True)
            raise
    except OSError as error:
        raise CutawayError(
            f"the trace {path} can't be written ({error.strerror or error}); nothing of it is left. Mend this, or name "
            "another folder."
        ) from error


def write_trace(folder: Path, request: Mapping[str, Any], taps: Taps) -> int:
    """Write both files into a folder that is there; bytes of the tensors. request: what the first line says."""
    arrays = {key: taps[key].values for key in taps}
    offsets = write_safetensors(folder / TENSORS, arrays, {"format": "cutaway-trace"})
    with open(folder / LINES, "w", encoding="utf-8") as file:
        for line in ({"kind": "request", "format": FORMAT, **request}, *_lines(taps, arrays, offsets)):
            file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
    return sum(array.nbytes for array in arrays.values())


def _lines(taps: Taps, arrays: Mapping[str, npt.NDArray[Any]], offsets: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """One for each step and tensor, in the order in which they were computed."""
    done = dict.fromkeys(arrays, 0)
    for block in taps.blocks:
        array, first = arrays[block.key], done[block.key]
        end = done[block.key] = first + len(block.positions)
        row = array[0].nbytes
        yield {
            "kind": "rows",
            "name": block.tensor.name,
            "layer": block.layer if block.layer >= 0 else None,
            "choice": block.choice,
            "step": block.step,
            "positions": block.positions.tolist(),
            "shape": [end - first, *array.shape[1:]],
            "dtype": str(array.dtype),
            "file": TENSORS,
            "key": block.key,
            "rows": [first, end],
            "bytes": [offsets[block.key] + first * row, offsets[block.key] + end * row],
        }


def write_safetensors(
    path: Path, arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]
) -> dict[str, int]:
    """Write the arrays under their names, in this order; where in the file each begins.

    The layout is safetensors': the header's length as uint64, the header in JSON, the bytes of all tensors.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": DTYPES[str(array.dtype)], "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).data)
    return {name: 8 + len(text) + header[name]["data_offsets"][0] for name in arrays}
