"""Where compiled kernels lie on disk: a folder whose name is a stamp over all that the code depends on, one file a
signature.

In: a function's name, its arguments' types, and what was compiled for them. Out: the same, in this process or another
one. Several processes may compile at once: a file is there whole or not at all.
"""

import atexit
import contextlib
import errno
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Final

from cutaway.hub.paths import kernels_dir
from cutaway.hub.whole_file import write_whole
from cutaway.ops.simd.host import processor_features, processor_name
from cutaway.ops.simd.lowering import LOWERING

COMPILED_SOURCES: Final = ("ops/**/*.py", "model/forward.py", "model/hidden.py", "model/records.py", "sampling/**/*.py")
"""The package's sources that end up in compiled code."""

LIBRARIES: Final = ("numba", "llvmlite", "numpy")
SETTINGS: Final = (
    *("NUMBA_OPT", "NUMBA_LOOP_VECTORIZE", "NUMBA_SLP_VECTORIZE"),
    *("NUMBA_BOUNDSCHECK", "NUMBA_DEBUGINFO"),
)
"""Variables of the environment that Numba compiles by."""

CODE: Final = "code"
PART: Final = "part"
"""Ends of file names: machine code, and what the compiler keeps for itself of functions that are parts of others."""

STAMP_DIGITS: Final = 20
STALE_AFTER_DAYS: Final = 30


@functools.cache
def stamp() -> str:
    """A digest of everything that compiled code depends on: kernel sources, vocabulary, versions, processor."""
    digest = hashlib.sha256()
    package = Path(__file__).parent.parent
    for pattern in COMPILED_SOURCES:
        for source in sorted(package.glob(pattern)):
            digest.update(source.relative_to(package).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    versions = (sys.version, *map(_version, LIBRARIES))
    settings = tuple(os.environ.get(name) for name in SETTINGS)
    digest.update(repr((versions, settings, LOWERING, processor_name(), sorted(processor_features()))).encode())
    return digest.hexdigest()[:STAMP_DIGITS]


def _version(library: str) -> bytes:
    """The source that names an installed library's version, read without importing it."""
    found = importlib.util.find_spec(library)
    folder = Path(found.origin).parent if found and found.origin else Path()
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*version.py")))


@functools.cache
def cache_folder() -> Path:
    """The folder for this stamp, made if need be; a temporary one, with a warning, where the user's cache can't be
    written.
    """
    folder = kernels_dir() / stamp()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o022:  # what lies in it will be executed
            raise PermissionError(errno.EPERM, "others may write it")
        # The folder's date says when it was last used; the ones long unused are removed.
        os.utime(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if folder.is_dir() and error.errno != errno.EPERM:
            return folder  # readable, and perhaps full: what it lacks is compiled again by each process
        warnings.warn(
            f"compiled kernels can't be kept in {folder} ({error.strerror}); they will be compiled again next time. "
            "Set CUTAWAY_CACHE to a folder that can be written.",
            stacklevel=2,
        )
        temporary = Path(tempfile.mkdtemp(prefix="cutaway-kernels-"))
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        return temporary
    _remove_stale(folder.parent)
    return folder


def _remove_stale(kernels: Path) -> None:
    """Remove the folders of stamps that were not used for long: nothing but kernels, in folders that we named."""
    with contextlib.suppress(OSError):
        for folder in list(kernels.iterdir()):
            if re.fullmatch(rf"[0-9a-f]{{{STAMP_DIGITS}}}", folder.name) and not folder.is_symlink():
                _remove_if_stale(folder)


def _remove_if_stale(folder: Path) -> None:
    with contextlib.suppress(OSError):  # another process may be doing the same; something else may lie in it
        if time.time() - folder.stat().st_mtime > STALE_AFTER_DAYS * 86400:
            for end in (CODE, PART):
                for kernel_file in folder.glob(f"*.{end}*"):  # and what a process that was killed left half-written
                    kernel_file.unlink()
            folder.rmdir()


def cache_is_shared() -> bool:
    """Whether other processes find what this one compiles."""
    return cache_folder().parent == kernels_dir()


def path(place: str, types: tuple[str, ...], end: str = CODE) -> Path:
    """Where a function's code for arguments of these types lies, if it does. ``place`` begins its name."""
    return cache_folder() / f"{place}-{hashlib.sha256(repr(types).encode()).hexdigest()[:24]}.{end}"


def load(file: Path) -> bytes | None:
    """What was saved there, or None: a missing or damaged file is compiled anew and replaced.

    A file begins with the SHA-256 of the rest: a damaged one would run.
    """
    try:
        content = file.read_bytes()
    except OSError:
        return None
    digest, data = content[:32], content[32:]
    return data if hashlib.sha256(data).digest() == digest else None


def save(file: Path, data: bytes) -> None:
    """Keep code for other processes. Where that fails (disk full, read-only) the kernel lives in memory."""
    with contextlib.suppress(OSError):
        write_whole(file, hashlib.sha256(data).digest() + data)
