"""Files that commands write.

In: a path, a text. Out: the file, or an error: before the work that it is for, where that can be known.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cutaway.errors import CutawayError, InvalidRequestError
from cutaway.hub.whole_file import write_whole


def check_can_be_written(path: Path, option: str) -> None:
    """Refuse a file that can't be written, before the work that it is for. option: by which it was given."""
    field = option.removeprefix("--").replace("-", "_")
    try:
        if path.is_dir():
            raise InvalidRequestError(f"{option} {path} is a folder. Name a file in it.", field)
        if path.exists() and not path.is_file():
            raise InvalidRequestError(f"{option} {path} is a pipe or device. Name a file.", field)
        folder = path.resolve().parent if path.is_symlink() else path.parent
    except OSError as error:  # the name is too long, or a folder on the way may not be read
        raise InvalidRequestError(
            f"{option} {path} can't be written ({error.strerror}). Name another file.", field
        ) from None
    if not folder.is_dir():
        raise InvalidRequestError(f"{option} {path}: there is no folder {folder}. Make it, or name another.", field)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidRequestError(
            f"{option} {path}: nothing can be written in {folder} ({error.strerror}). Name another file.", field
        ) from None


def check_apart(paths: Mapping[str, Path | None]) -> None:
    """Refuse one place for two results, of which the last would take the first one's place. paths: by their options."""
    taken: dict[str, str] = {}
    for option, path in paths.items():
        if path is not None:
            first = taken.setdefault(os.path.realpath(path), option)
            if first != option:
                raise InvalidRequestError(
                    f"{first} and {option} are both {path}. Name another for one of them.",
                    option.removeprefix("--").replace("-", "_"),
                )


def write_result(path: Path, text: str) -> None:
    """Write the file at last, whole or not at all; CutawayError where that can't be done after all."""
    try:
        write_whole(path, text.encode(), sync=True)
    except OSError as error:
        raise CutawayError(f"{path} can't be written ({error.strerror}). Name another file.") from None
