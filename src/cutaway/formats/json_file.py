"""Reading a small file of a model's folder, most of them JSON.

In: a path. Out: the bytes, or the object that they say, or one clear error.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any, Final

from cutaway.errors import ModelFileError

MAX_BYTES: Final = 32 << 20
"""Of a file that lists things: configs have some kilobytes, indices of thousands of tensors some megabytes. A file of
nothing but empty lists takes twenty times its size in memory."""


def read_small(path: Path, most: int = MAX_BYTES) -> bytes:
    """The bytes of a regular file, without waiting for one that isn't. Raises ModelFileError; also for one of more than
    ``most`` bytes.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ModelFileError(f"{path}: is no regular file (a FIFO, socket or device). Fetch the model again.")
            data = file.read(most + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ModelFileError(f"{path}: can't be read ({reason}). Check the folder and its rights.") from error
    if len(data) > most:
        size = max(status.st_size, len(data))
        raise ModelFileError(f"{path}: has {size} bytes; at most {most} are read. Fetch it again.")
    return data


def read_json(path: Path) -> dict[str, Any]:
    """The object in the file. Raises ModelFileError."""
    try:
        value = json.loads(read_small(path))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: is no JSON ({str(error)[:80]}). The file is damaged: fetch it again.") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{path}: holds no JSON object. The file is damaged: fetch it again.")
    return value


def read_json_if_there(path: Path) -> dict[str, Any]:
    """As ``read_json``; an empty dictionary where there is no such file. A link that leads nowhere is an error."""
    return read_json(path) if os.path.lexists(path) else {}
