"""What a user names, as a local file: a path is itself, a name of the catalogue is its file in the cache.

A name goes in, a ``LocalModel`` comes out. The catalogue comes first, whatever the working folder holds;
``./smollm2`` names a file of that name.
"""

import difflib
import itertools
import os
from dataclasses import dataclass
from pathlib import Path

from cutaway.errors import DownloadError, InvalidRequestError, ModelFileError
from cutaway.hub.catalogue import CATALOGUE, CatalogueEntry
from cutaway.hub.fetch import discard_partial, fetch, final_path, is_whole, lock
from cutaway.hub.progress import Progress

_NAMES_READ = 10_000  # of a folder, to find the nearest
_NAMES_SHOWN = 5


@dataclass(frozen=True)
class LocalModel:
    """A model file on this machine; ``entry`` is None for a file that was named by its path."""

    name: str
    path: Path
    entry: CatalogueEntry | None


def resolve(name: str, progress: Progress | None = None) -> LocalModel:
    """Returns the file that ``name`` means; fetches a catalogued model that is not in the cache.

    A catalogued file was verified by SHA-256 when it was fetched and is checked by its size here. A file
    named by its path is not read: the reader of its format judges it.
    """
    if not name.strip():
        raise InvalidRequestError(f"the model's name is empty. {_known_names()}", field="model")
    entry = CATALOGUE.get(name)
    if entry is not None:
        return _resolve_entry(entry, progress or _no_progress)
    return _resolve_path(name)


def installed() -> list[LocalModel]:
    """The catalogued models whose files are in the cache, whole or not; ``resolve`` refuses the latter."""
    entries = dict.fromkeys(CATALOGUE.values())
    return [LocalModel(e.alias, final_path(e), e) for e in entries if os.path.isfile(final_path(e))]


def remove(name: str) -> int:
    """Deletes a catalogued model from the cache, with what an interrupted fetch left; returns the bytes
    freed.

    Only names of the catalogue are taken, so nothing outside the cache can be deleted; a link in the cache is
    cut, and what it points to stays.
    """
    entry = CATALOGUE.get(name)
    if entry is None:
        raise InvalidRequestError(
            f"{name!r} names no fetched model; nothing else can be removed. {_known_names()}", field="model"
        )
    path = final_path(entry)
    if not path.parent.is_dir():
        return 0
    try:
        with lock(entry):
            freed = discard_partial(entry)
            if os.path.lexists(path):
                freed += path.lstat().st_size
                path.unlink()
            return freed
    except BlockingIOError as error:
        raise DownloadError(f"{name} is being fetched by another process; remove it afterwards.") from error
    except OSError as error:
        raise ModelFileError(f"{path} cannot be removed: {error}. Check the rights of its folder.") from error


def _resolve_entry(entry: CatalogueEntry, progress: Progress) -> LocalModel:
    path = final_path(entry)
    try:
        if path.exists() and not is_whole(entry):
            kind = f"has {path.stat().st_size} bytes" if path.is_file() else "is not a file"
            raise ModelFileError(
                f"{path} {kind}; {entry.alias} has {entry.size} bytes. "
                f"Fetch it again: cutaway rm {entry.alias}, then cutaway pull {entry.alias}."
            )
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error}. Check its rights, or set CUTAWAY_CACHE.") from error
    return LocalModel(entry.alias, fetch(entry, progress), entry)


def _resolve_path(name: str) -> LocalModel:
    try:
        path = Path(name).expanduser()
        if path.is_file():
            return LocalModel(name, path, None)
        if path.is_dir():
            raise ModelFileError(f"{name!r} is a folder; name a model file in it. {_names_in(path, '')}")
        if path.exists():
            raise ModelFileError(f"{name!r} is a device, pipe or socket; name an ordinary file.")
        if "/" in name or os.sep in name or path.suffix.lower() == ".gguf":
            raise ModelFileError(f"no such file: {name!r}. {_names_in(path.parent, path.name)}")
    except OSError as error:
        raise ModelFileError(f"{name!r} cannot be opened: {error.strerror}. Check the path.") from error
    except (ValueError, RuntimeError) as error:  # a NUL byte or a lone surrogate; "~somebody" who is nobody
        raise InvalidRequestError(f"{name!r} is no path: {error}. {_known_names()}", field="model") from error
    near = difflib.get_close_matches(name.lower(), CATALOGUE, n=1)
    meant = f" Did you mean {near[0]}?" if near else ""
    raise InvalidRequestError(f"unknown model {name!r}.{meant} {_known_names()}", field="model")


def _known_names() -> str:
    return f"Known names: {', '.join(CATALOGUE)}; or give the path of a .gguf file."


def _names_in(folder: Path, wanted: str) -> str:
    """A sentence on what the folder offers instead: the names nearest to ``wanted``, else its model files."""
    if not folder.is_dir():
        return f"There is no folder {str(folder)!r} either."
    with os.scandir(folder) as listing:
        names = sorted(item.name for item in itertools.islice(listing, _NAMES_READ))
    models = [name for name in names if name.lower().endswith(".gguf")]
    near = difflib.get_close_matches(wanted, names, n=_NAMES_SHOWN) or models[:_NAMES_SHOWN]
    if not near:
        return f"The folder {str(folder)!r} holds no .gguf file."
    return f"The folder {str(folder)!r} has: {', '.join(near)}."


def _no_progress(stage: str, done: int, total: int | None) -> None:
    """Tells nobody."""
