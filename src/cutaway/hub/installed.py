"""The models on this machine that have a name: those of the catalogue, and those in the Hugging Face hub's cache.

In: nothing, or a name. Out: a list; or what removing that name would delete, and then its deletion. Nothing outside the
two caches is ever deleted, and in the hub's cache, which other programs share, nothing but the repository that was
named.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cutaway.errors import CutawayError, DownloadError, InvalidRequestError, ModelFileError
from cutaway.hub.catalogue import CATALOGUE, HUB_ALIASES, CatalogueEntry, find_hub_alias
from cutaway.hub.choose_files import gguf_models, hugging_face_files, selector
from cutaway.hub.fetch import discard_partial, final_path, is_whole, lock
from cutaway.hub.model_name import PREFIX, HubName, parse_hub_name
from cutaway.hub.resolve import known_names, refuse_address

_REFERENCE_BYTES = 1000


@dataclass(frozen=True)
class InstalledModel:
    """A model by a name that ``resolve`` takes; ``path`` is what it resolves to, ``files`` are all of its files."""

    name: str
    path: Path
    files: tuple[Path, ...]

    @property
    def bytes(self) -> int:
        """What its files take on the disk, together."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def last_used(self) -> float:
        """When a file of it was last read or written, in seconds since 1970; most systems note one reading a day."""
        return max(max(file.stat().st_atime, file.stat().st_mtime) for file in self.files)


@dataclass(frozen=True)
class Removal:
    """What removing a name deletes. ``carry_out`` does it and returns the bytes that it freed."""

    name: str
    files: tuple[str, ...]
    bytes: int
    shared_with: Path | None
    """The hub's cache, if the files lie in it, where other programs may use them."""
    carry_out: Callable[[], int]


def installed() -> list[InstalledModel]:
    """All of them, whole or not; ``resolve`` refuses what isn't. In the hub's cache the files' names tell models."""
    entries = dict.fromkeys(CATALOGUE.values())
    paths = [(entry, final_path(entry)) for entry in entries]
    own = [InstalledModel(entry.alias, path, (path,)) for entry, path in paths if path.is_file()]
    return own + list(_in_hub_cache())


def fetched_names() -> set[str]:
    """The names of ``CATALOGUE`` and ``HUB_ALIASES`` whose files are on this machine, whole."""
    from cutaway.hub.hub_cache import find_cached

    def has(find: Callable[[], object]) -> bool:
        try:
            return bool(find())
        except (CutawayError, OSError):  # parts are missing, or nothing can be read
            return False

    own = {name for name, entry in CATALOGUE.items() if has(partial(is_whole, entry))}
    return own | {
        name for name, entry in HUB_ALIASES.items() if has(partial(find_cached, entry.repository, entry.wanted))
    }


def plan_removal(name: str) -> Removal:
    """What is to be deleted for a name of the catalogue, a repository, or one model of it (``owner/repo:Q8_0``).

    Raises: InvalidRequestError: the name is none of these. ModelFileError: what lies there can't be read.
    """
    if name in CATALOGUE:
        return _plan_own(CATALOGUE[name], name)
    if alias := find_hub_alias(name):
        return _plan_hub(HubName(alias[0].repository, alias[1]), name)
    if not name.startswith(PREFIX) and _exists(name):
        raise InvalidRequestError(
            f"{name!r} is a file or folder, and rm removes fetched models only; delete it yourself.", field="model"
        )
    refuse_address(name)
    hub_name = parse_hub_name(name)
    if hub_name is None:
        raise InvalidRequestError(
            f"{name!r} names no fetched model; nothing else can be removed. {known_names()}", field="model"
        )
    return _plan_hub(hub_name, name)


def _exists(name: str) -> bool:
    """Whether there is anything of that path."""
    try:
        return os.path.lexists(os.path.expanduser(name))
    except ValueError:  # a NUL byte
        return False


def _in_hub_cache() -> Iterator[InstalledModel]:
    """The models in the hub's cache: of a repository with several, each by its own name."""
    # Imported here, with the client's settings: commands that don't look there shall not wait for them.
    from cutaway.hub.hub_cache import cached_repositories, files_below, snapshot

    for repository in cached_repositories():
        folder = snapshot(repository)
        if folder is None:
            continue
        names = files_below(folder)
        models = gguf_models(names)
        if whole := hugging_face_files(names):
            yield InstalledModel(repository, folder, tuple(folder / name for name in whole))
        for model, files in models.items():
            wanted = None if len(models) == 1 and not whole else selector(model, models)
            yield InstalledModel(
                str(HubName(repository, wanted)), folder / files[0], tuple(folder / name for name in files)
            )


def _plan_own(entry: CatalogueEntry, name: str) -> Removal:
    """A link in the cache is cut, and what it points to stays."""
    path = final_path(entry)

    def carry_out() -> int:
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

    size = path.lstat().st_size if os.path.lexists(path) else 0
    return Removal(name, (str(path),) if size else (), size, None, carry_out)


def _plan_hub(name: HubName, given: str) -> Removal:
    """All snapshots of the repository, or of one model of it the files in each. The client knows what they share."""
    from huggingface_hub import scan_cache_dir

    from cutaway.hub.choose_files import choose_files
    from cutaway.hub.hub_cache import repository_folder
    from cutaway.hub.hub_files import hub_cache

    nothing = Removal(given, (), 0, hub_cache(), lambda: 0)
    if not repository_folder(name.repository).is_dir():
        return nothing
    _check_references(hub_cache())  # the client reads those of all repositories, whatever they are
    cache = scan_cache_dir(hub_cache())
    found = [repo for repo in cache.repos if repo.repo_type == "model" and repo.repo_id == name.repository]
    if not found:
        raise ModelFileError(
            f"{repository_folder(name.repository)} is not as the hub's client makes it, so it is left alone. Look "
            "at it, and remove it by hand."
        )
    # Only this one: the client finds revisions by their commits, and a repository's copy has the same ones.
    cache = replace(cache, repos=frozenset(found))
    revisions = found[0].revisions
    files: set[Any] = {file for revision in revisions for file in revision.files}
    inside = os.path.realpath(repository_folder(name.repository))
    for file in files:
        blob = os.path.realpath(file.blob_path)
        if os.path.commonpath((blob, inside)) != inside:
            raise ModelFileError(
                f"{file.file_path} is a link to {blob}, outside of the repository's folder, which would be deleted. "
                "Remove the link by hand."
            )
    if name.wanted is not None:
        sizes = {
            _name_in_snapshot(revision, file): file.size_on_disk for revision in revisions for file in revision.files
        }
        chosen = set(choose_files(sizes, name.wanted, name.repository).names)
        files = {
            file for revision in revisions for file in revision.files if _name_in_snapshot(revision, file) in chosen
        }
        strategy = cache.delete_files(*files)
    else:
        strategy = cache.delete_revisions(*(revision.commit_hash for revision in revisions))

    def carry_out() -> int:
        if _is_being_fetched(name.repository):
            raise DownloadError(f"{given} is being fetched by another process; remove it afterwards.")
        strategy.execute()
        if left := [str(file.file_path) for file in files if os.path.lexists(file.file_path)]:
            raise ModelFileError(f"{', '.join(left[:5])} cannot be removed. Check the rights of the folder.")
        return int(strategy.expected_freed_size)

    return Removal(
        given,
        tuple(sorted(str(file.file_path) for file in files)),
        int(strategy.expected_freed_size),
        hub_cache(),
        carry_out,
    )


def _check_references(cache: Path) -> None:
    """Raises ModelFileError for a reference that is no small file of text: reading it could fail, or never end."""
    for path in cache.glob("*--*/refs/**/*"):
        try:
            if path.is_dir():
                continue
            sound = path.is_file() and path.stat().st_size < _REFERENCE_BYTES and path.read_bytes().isascii()
        except OSError:
            sound = False
        if not sound:
            raise ModelFileError(f"{path} is no commit's name: the cache is damaged. Remove it, then try again.")


def _is_being_fetched(repository: str) -> bool:
    """Whether a process holds one of the locks that the client takes for each file that it fetches."""
    from cutaway.hub.hub_cache import repository_folder

    folder = repository_folder(repository)
    for path in (folder.parent / ".locks" / folder.name).glob("*.lock"):
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


def _name_in_snapshot(revision: Any, file: Any) -> str:
    return str(file.file_path.relative_to(revision.snapshot_path).as_posix())
