"""The head of a safetensors file (huggingface/safetensors, format.md): its length; names, types and places, in JSON.

In: arrays by name, in the order in which their bytes follow. Out: the head, and where in the file each array begins.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

TYPES: Final = {
    np.dtype(np.float32): "F32",
    np.dtype(np.float16): "F16",
    np.dtype(np.int8): "I8",
    np.dtype(np.int32): "I32",
}
ALIGNMENT: Final = 8  # of the first array
LENGTH_BYTES: Final = 8


def safetensors_head(
    arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> tuple[bytes, dict[str, int]]:
    """metadata: texts for whoever reads the file."""
    entries: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    begins: dict[str, int] = {}
    place = 0
    for name, array in arrays.items():
        begins[name], end = place, place + array.nbytes
        entries[name] = {"dtype": TYPES[array.dtype], "shape": list(array.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    head = len(text).to_bytes(LENGTH_BYTES, "little") + text
    return head, {name: len(head) + begin for name, begin in begins.items()}
