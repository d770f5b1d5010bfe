"""Files that commands write.

In: a path, a text. Out: the file, or an error: before the work that it is for, where that can be known.
"""

import tempfile
from pathlib import Path

from cutaway.errors import CutawayError, InvalidRequestError
from cutaway.hub.whole_file import write_whole


def check_can_be_written(path: Path, option: str) -> None:
    """Refuse a file that can't be written, before the work that it is for. option: by which it was given."""
    field = option.removeprefix("--").replace("-", "_")
    if path.is_dir():
        raise InvalidRequestError(f"{option} {path} is a folder. Name a file in it.", field)
    if not path.parent.is_dir():
        raise InvalidRequestError(
            f"{option} {path}: there is no folder {path.parent}. Make it, or name another.", field
        )
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InvalidRequestError(
            f"{option} {path}: nothing can be written in {path.parent} ({error.strerror}). Name another file.", field
        ) from None


def write_result(path: Path, text: str) -> None:
    """Write the file at last, whole or not at all; CutawayError where that can't be done after all."""
    try:
        write_whole(path, text.encode(), sync=True)
    except OSError as error:
        raise CutawayError(f"{path} can't be written ({error.strerror}). Name another file.") from None
