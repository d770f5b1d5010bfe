"""A trace on disk: what was tapped of one request, as tensors that other programs read, and lines that say where.

In: a request's output with its taps. Out: a folder with ``tensors.safetensors`` and ``trace.jsonl``. It has its name
when it is whole: until then it is a hidden folder beside, which an error or an interruption takes away.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cutaway.audit.safetensors_head import safetensors_head
from cutaway.audit.taps.results import Taps
from cutaway.errors import CutawayError, InvalidRequestError

TENSORS: Final = "tensors.safetensors"
LINES: Final = "trace.jsonl"
FORMAT: Final = 1


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
        for line in ({"kind": "request", "format": FORMAT, **request}, *_lines(taps, offsets)):
            file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
    return sum(array.nbytes for array in arrays.values())


def _lines(taps: Taps, offsets: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """One for each step and tensor, step by step."""
    for step in sorted({int(each) for tapped in taps.tensors for each in tapped.steps}):
        for tapped in taps.tensors:
            first, end = (int(each) for each in np.searchsorted(tapped.steps, [step, step + 1]))
            if first == end:
                continue
            values = tapped.rows.values
            row = values[0].nbytes
            yield {
                "kind": "rows",
                "name": tapped.tensor.name,
                "layer": tapped.layer if tapped.layer >= 0 else None,
                "choice": tapped.choice,
                "step": step,
                "positions": tapped.rows.positions[first:end].tolist(),
                "shape": [end - first, *values.shape[1:]],
                "dtype": str(values.dtype),
                "file": TENSORS,
                "key": tapped.key,
                "rows": [first, end],
                "bytes": [offsets[tapped.key] + first * row, offsets[tapped.key] + end * row],
            }


def write_safetensors(
    path: Path, arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]
) -> dict[str, int]:
    """Write the arrays under their names, in this order; where in the file each begins."""
    head, begins = safetensors_head(arrays, metadata)
    with open(path, "wb") as file:
        file.write(head)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).data)
    return begins
