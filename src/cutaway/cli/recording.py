"""``--record``: the options of the commands that can write down what they compute.

In: the options' values. Out: a ``Record`` for the ``LLM``, or none.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.errors import InvalidRequestError
from cutaway.hub.progress import Progress

if TYPE_CHECKING:
    from cutaway.audit.record.record import Record

FILE = "Write every request into this file, so that `cutaway verify` can replay it; it is added to."
LEVEL = "How much: tokens, operations (a hash of each, several times slower), or tensors (their values, too)."
KEY = "Sign the receipts by the key in this file: Ed25519 in PEM, or any bytes for HMAC."

RecordFile = Annotated[Path | None, typer.Option("--record", metavar="FILE", help=FILE)]
RecordLevel = Annotated[str | None, typer.Option("--record-level", help=LEVEL)]
RecordKey = Annotated[Path | None, typer.Option("--record-key", metavar="FILE", help=KEY)]


def record_of(path: Path | None, level: str | None, key: Path | None, progress: Progress) -> "Record | None":
    """The record that is asked for, its file open. Raises InvalidRequestError where it can't be written, and for
    options that would do nothing.
    """
    if path is None:
        for name, value in (("--record-level", level), ("--record-key", key)):
            if value is not None:
                raise InvalidRequestError(f"there is {name}, and no --record. Add it, or leave {name}.", "record")
        return None
    from cutaway.audit.record.record import Record

    def told(done: int, total: int) -> None:
        progress("digest", done, total)

    return Record(path, "tokens" if level is None else level, key=key, told=told)
