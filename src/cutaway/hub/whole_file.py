"""A file that is written whole or not at all.

In: a path, the content. Out: the file. The content goes into a hidden file beside, which is renamed when it is
complete, so that whoever reads sees the old one or the new one.
"""

import contextlib
import errno
import os
from pathlib import Path


def write_whole(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Write a file, or leave what was there. Of a link, what it points to is written; nothing but a file is replaced.

    Args:
        sync: wait until the disk has it before it gets its name: then it outlasts a loss of power, too. A cache, which
            can be made again, needs no such thing.

    Raises:
        OSError: it can't be written. Nothing is left beside it.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():  # a device would be replaced for all
        raise OSError(errno.EINVAL, "it is no ordinary file")
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        with part.open("xb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
