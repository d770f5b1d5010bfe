"""Standard input as a file: a corpus is read twice, a pipe can be read once.

In: paths, of which one may be ``-``. Out: paths of files; what was piped lies in a temporary one until the
work is done.
"""

import errno
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from cutaway.errors import CapacityError, InvalidRequestError

STANDARD_INPUT = Path("-")


@contextmanager
def spooled(paths: Sequence[Path], standard_input: TextIO | None) -> Iterator[list[Path]]:
    """The paths, with a file in place of ``-``; it is deleted at the end.

    Raises:
        InvalidRequestError: ``-`` is there twice, or can't be read.
        CapacityError: there is no room for the text.
    """
    if STANDARD_INPUT not in paths:
        yield list(paths)
        return
    if paths.count(STANDARD_INPUT) > 1:
        raise InvalidRequestError("- is given twice; standard input can be read once. Give it once.", "corpus")
    if standard_input is None:
        raise InvalidRequestError("- is given, but standard input is closed; pipe the text to it.", "corpus")
    with tempfile.TemporaryDirectory(prefix="cutaway-") as folder:
        copy = Path(folder) / "standard-input"  # errors about the text name it
        try:
            with copy.open("wb") as file:
                shutil.copyfileobj(standard_input.buffer, file)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise CapacityError(
                    f"standard input doesn't fit into {folder} ({error.strerror}). Make room, or set TMPDIR to "
                    "a folder that has more."
                ) from error
            raise InvalidRequestError(f"standard input can't be read ({error.strerror}).", "corpus") from error
        yield [copy if path == STANDARD_INPUT else path for path in paths]
