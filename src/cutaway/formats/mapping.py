"""Mapping a file into memory: a regular file only, without waiting for one that isn't, and never written to.

In: a path, and a look at the first bytes. Out: the mapped bytes, or one clear error.
"""

import os
import stat
from collections.abc import Callable
from mmap import ACCESS_READ, mmap
from pathlib import Path

from cutaway.errors import ModelFileError

HEAD_BYTES = 512


def map_file(path: Path, kind: str, look: Callable[[bytes, int], str | None]) -> mmap:
    """The bytes of the regular file at ``path``.

    kind: what it should be, for messages ("GGUF"). look: from the first ``HEAD_BYTES`` and the size, what is wrong with
    the file, if anything is. Raises ``ModelFileError``.
    """
    try:
        # Not to wait for a writer, should the path be a FIFO.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ModelFileError(
            f"{path}: can't be opened ({reason}); a readable {kind} file is needed. Check path and permissions."
        ) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            found = "a directory" if stat.S_ISDIR(status.st_mode) else "a FIFO, socket or device"
            raise ModelFileError(f"{path}: is {found}; a regular file is needed. Name the .{kind.lower()} file itself.")
        problem = look(os.pread(descriptor, HEAD_BYTES, 0), status.st_size)
        if problem is not None:
            raise ModelFileError(f"{path}: {problem}")
        return mmap(descriptor, 0, access=ACCESS_READ)
    except OSError as error:
        raise ModelFileError(
            f"{path}: can't be mapped into memory ({error.strerror}); a file on a local disk is needed. "
            "Copy it to one, or raise the limit of address space."
        ) from error
    finally:
        os.close(descriptor)
