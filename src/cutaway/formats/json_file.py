"""Reading a small JSON file of a model's folder.

In: a path. Out: the object that it holds, or one clear error.
"""

import json
from pathlib import Path
from typing import Any, Final

from cutaway.errors import ModelFileError

MAX_BYTES: Final = 256 << 20
"""Tokenizers of a quarter of a million tokens have 30 MB."""


def read_json(path: Path) -> dict[str, Any]:
    """The object in the file. Raises ModelFileError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ModelFileError(
                f"{path}: has {path.stat().st_size} bytes; at most {MAX_BYTES} are read. Fetch it again."
            )
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelFileError(f"{path}: can't be read ({error.strerror}). Check the folder and its rights.") from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: is no JSON ({str(error)[:80]}). The file is damaged: fetch it again.") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{path}: holds no JSON object. The file is damaged: fetch it again.")
    return value


def read_json_if_there(path: Path) -> dict[str, Any]:
    """As ``read_json``; an empty dictionary where there is no such file."""
    return read_json(path) if path.exists() else {}
