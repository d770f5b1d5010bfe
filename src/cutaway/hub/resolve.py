"""What a user names, as local files: a name of the catalogue, a file, a folder, or a repository on the hub.

A name goes in, a ``LocalModel`` comes out. The catalogue comes first, whatever the working folder holds (``./smollm2``
names a file of that name); then what exists on this machine; then the hub. Whatever begins with ``hf:`` is the hub's.
"""

import difflib
import itertools
import os
from dataclasses import dataclass
from pathlib import Path

from cutaway.errors import CutawayError, DownloadError, InvalidRequestError, ModelFileError
from cutaway.hub.catalogue import CATALOGUE, HUB_ALIASES, CatalogueEntry, HubAlias, find_hub_alias
from cutaway.hub.choose_files import CONFIG, choose_files, gguf_models
from cutaway.hub.fetch import fetch, final_path, is_whole
from cutaway.hub.model_name import PREFIX, HubName, hub_name_in_address, parse_hub_name
from cutaway.hub.paths import offline_variable
from cutaway.hub.progress import Progress

_NAMES_READ = 10_000  # of a folder, to find the nearest or its model
_NAMES_SHOWN = 5


@dataclass(frozen=True)
class LocalModel:
    """A model on this machine. ``path`` is a file (of a split GGUF the first part) or, of a model in Hugging Face's
    layout, a folder; ``entry`` is None unless a name of the catalogue led to it.
    """

    name: str
    path: Path
    entry: CatalogueEntry | HubAlias | None = None


def resolve(name: str, progress: Progress | None = None, *, refresh: bool = False, fetches: bool = True) -> LocalModel:
    """Returns the files that ``name`` means; fetches them if they are not on this machine. fetches: False: that is a
    ModelFileError instead, and nobody is asked for them.

    A catalogued file was verified by SHA-256 when it was fetched and is checked by its size here. Of a repository whose
    model is in the hub's cache the hub is asked only to ``refresh`` it. A file that was named by its path is not read:
    the reader of its format judges it.

    Raises: InvalidRequestError: the name is none, or fits several models. ModelFileError: there is no model.
    DownloadError, CapacityError: it can't be fetched.
    """
    if not name.strip():
        raise InvalidRequestError(f"the model's name is empty. {known_names()}", field="model")
    progress = (progress or _no_progress) if fetches else None
    if name in CATALOGUE:
        return _resolve_entry(CATALOGUE[name], progress)
    if found := find_hub_alias(name):
        entry, wanted = found
        try:
            return LocalModel(name, _resolve_hub(HubName(entry.repository, wanted), progress, refresh), entry)
        except DownloadError as error:
            raise DownloadError(f"{name}: {error}") from error
    if not name.startswith(PREFIX) and (path := _existing_path(name)):
        return LocalModel(name, path)
    refuse_address(name)
    hub_name = parse_hub_name(name)
    if hub_name is None or (not name.startswith(PREFIX) and name.lower().endswith(".gguf") and ":" not in name):
        raise _no_such_model(name)
    try:
        return LocalModel(name, _resolve_hub(hub_name, progress, refresh))
    except DownloadError as error:
        nothing_here = "" if name.startswith(PREFIX) else f"There is no file or folder {name!r}, and on the hub: "
        raise DownloadError(f"{nothing_here}{error}") from error


def refuse_address(name: str) -> None:
    """Raises InvalidRequestError for the address of a page or file: models are named."""
    if not name.lower().startswith(("http://", "https://")):
        return
    if hub_name := hub_name_in_address(name):
        raise InvalidRequestError(f"{name!r} is an address; write {hub_name}", field="model")
    raise InvalidRequestError(
        f"{name!r} is an address; name a model. Of a repository on the Hugging Face hub write owner/repo; download any "
        "other file yourself, and name its path.",
        field="model",
    )


def known_names() -> str:
    """A sentence on what can be named."""
    names = ", ".join((*CATALOGUE, *HUB_ALIASES))
    return (
        f"Known names: {names}; or give the path of a .gguf file, of a folder with a model, or a repository on the "
        "Hugging Face hub, as in owner/repo:Q4_K_M."
    )


def _resolve_entry(entry: CatalogueEntry, progress: Progress | None) -> LocalModel:
    """progress: None: nothing is fetched."""
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
    if progress is None and not path.exists():
        raise _not_here(entry.alias)
    return LocalModel(entry.alias, path if progress is None else fetch(entry, progress), entry)


def _resolve_hub(name: HubName, progress: Progress | None, refresh: bool) -> Path:
    """A repository's model: from the cache where that has it, else fetched. progress: None: nobody is asked. refresh:
    ask the hub all the same.
    """
    from cutaway.hub import hub_cache, hub_files  # the client is loaded for hub names only

    failed: CutawayError | None = None
    if not refresh or offline_variable():
        try:
            if found := hub_cache.find_cached(name.repository, name.wanted):
                folder, files = found
                return folder if files.first is None else folder / files.first
        except CutawayError as error:  # other models of the repository are in the cache; the hub may have this one
            failed = error
    if progress is None:
        raise _not_here(str(name)) from failed
    try:
        listing = hub_files.list_files(name.repository)
    except DownloadError as error:
        if failed is not None:
            raise DownloadError(f"in the cache, {failed} {error}") from error
        raise
    files = choose_files(listing.sizes, name.wanted, name.repository)
    folder = hub_files.download(listing, files.names, progress)
    return folder if files.first is None else folder / files.first


def _existing_path(name: str) -> Path | None:
    """The file, or the model in the folder, that is named by its path; None where there is nothing of that name."""
    try:
        path = Path(name).expanduser()
        if path.is_file():
            return path
        if path.is_dir():
            return _model_in(path)
        if path.exists():
            raise ModelFileError(f"{name!r} is a device, pipe or socket; name an ordinary file.")
    except OSError as error:
        raise ModelFileError(f"{name!r} cannot be opened: {error.strerror}. Check the path.") from error
    except CutawayError:  # some are ValueErrors, too
        raise
    except (ValueError, RuntimeError) as error:  # a NUL byte or a lone surrogate; "~somebody" who is nobody
        raise InvalidRequestError(f"{name!r} is no path: {error}. {known_names()}", field="model") from error
    return None


def _model_in(folder: Path) -> Path:
    """The folder itself, if it is a model in Hugging Face's layout; else the one GGUF model in it. Where there is a
    config but no such model, the reader of folders says what is wrong.
    """
    with os.scandir(folder) as listing:
        items = itertools.islice(listing, _NAMES_READ)
        sizes = {item.name: item.stat().st_size for item in items if item.is_file()}
    if CONFIG in sizes and not gguf_models(sizes):
        return folder
    files = choose_files(sizes, None, str(folder), is_folder=True)
    return folder if files.first is None else folder / files.first


def _no_such_model(name: str) -> CutawayError:
    """What to say about a name that means nothing."""
    path = Path(name).expanduser()
    if "/" in name or path.suffix.lower() == ".gguf":
        return ModelFileError(f"no such file: {name!r}. {_names_in(path.parent, path.name)}")
    known = (*CATALOGUE, *HUB_ALIASES)
    near = difflib.get_close_matches(name.lower(), known, n=1)
    meant = ""
    if near:
        meant = f" Did you mean {near[0]}?"
    elif parse_hub_name(PREFIX + name):
        meant = f" Names on the Hugging Face hub have an owner, as in owner/{name}."
    return InvalidRequestError(f"unknown model {name!r}.{meant} {known_names()}", field="model")


def _not_here(name: str) -> CutawayError:
    return ModelFileError(f"{name} is not on this machine. Fetch it: cutaway pull {name}")


def _names_in(folder: Path, wanted: str) -> str:
    """A sentence on what the folder offers instead: the names nearest to ``wanted``, else its model files."""
    try:
        if not folder.is_dir():
            return f"There is no folder {str(folder)!r} either."
        with os.scandir(folder) as listing:
            names = sorted(item.name for item in itertools.islice(listing, _NAMES_READ))
    except OSError as error:
        return f"The folder {str(folder)!r} can't be read ({error.strerror})."
    models = [name for name in names if name.lower().endswith(".gguf")]
    near = difflib.get_close_matches(wanted, names, n=_NAMES_SHOWN) or models[:_NAMES_SHOWN]
    if not near:
        return f"The folder {str(folder)!r} holds no .gguf file."
    return f"The folder {str(folder)!r} has: {', '.join(near)}."


def _no_progress(stage: str, done: int, total: int | None) -> None:
    """Tells nobody."""
