"""Files that commands write: whole or not at all, and refused before the work where they can't be written.

In: a path, a text. Out: the file.
"""

import errno
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cutaway.errors import CutawayError, InvalidRequestError


def check_can_be_written(path: Path, option: str) -> None:
    """Refuse a file that can't be written, before the work that it is for. option: by which it was given."""
    field = option.removeprefix("--").replace("-", "_")
    if path.is_dir():
        raise InvalidRequestError(f"{option} {path} is a folder. Name a file in it.", field)
    if path.exists() and not path.is_file():
        raise InvalidRequestError(f"{option} {path} is no ordinary file. Name another.", field)
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
    """Write the file at last; CutawayError where that can't be done after all."""
    try:
        write_whole(path, text)
    except OSError as error:
        raise CutawayError(f"{path} can't be written ({error.strerror}). Name another file.") from None


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is either the old one or the new one, whatever happens meanwhile. Of a link, what it
    points to is written; nothing but a file is replaced.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no ordinary file")
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=path.name, delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
