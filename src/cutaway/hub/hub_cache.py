"""What of the Hugging Face hub is on this machine already: found without the network.

In: a repository's name and what is wanted of it. Out: the folder and files in the hub's cache, or nothing. Source: the
layout of that cache, ``models--owner--repo/{refs/main, snapshots/COMMIT/…, blobs/…}``.
"""

import json
import os
from pathlib import Path

from cutaway.hub.choose_files import CONFIG, SHARD_INDEX, VOCABULARIES, ModelFiles, choose_files
from cutaway.hub.hub_files import BRANCH, hub_cache

_REFERENCE_BYTES = 100
_INDEX_BYTES = 64 << 20


def repository_folder(repository: str) -> Path:
    """Where the cache keeps a repository; it may not be there."""
    return hub_cache() / f"models--{repository.replace('/', '--')}"


def cached_repositories() -> list[str]:
    """The names of the repositories in the cache, in order."""
    folder = hub_cache()
    if not folder.is_dir():
        return []
    names = (path.name.removeprefix("models--") for path in folder.glob("models--*") if path.is_dir())
    return sorted(name.replace("--", "/", 1) for name in names)


def snapshot(repository: str) -> Path | None:
    """The folder of the files that the branch had when it was last asked for; None where there is none."""
    folder = repository_folder(repository)
    reference = folder / "refs" / BRANCH
    try:
        if not reference.is_file():  # a pipe would never end
            return None
        with reference.open("rb") as file:
            commit = file.read(_REFERENCE_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    path = folder / "snapshots" / commit
    return path if commit.isalnum() and path.is_dir() else None


def files_below(folder: Path) -> dict[str, int]:
    """Name → bytes of all files in a folder and its folders; what leads nowhere is left out."""
    found: dict[str, int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if path.is_file():
                found[path.relative_to(folder).as_posix()] = path.stat().st_size
    return found


def is_complete(folder: Path, files: ModelFiles) -> bool:
    """Whether all that the model needs is there. Of GGUF models ``choose_files`` has made sure."""
    if files.first is not None:
        return True
    if CONFIG not in files.names or not any(name in files.names for name in VOCABULARIES):
        return False
    if SHARD_INDEX not in files.names:
        return any(name == "model.safetensors" for name in files.names)
    try:
        with (folder / SHARD_INDEX).open("rb") as index:
            shards = set(json.loads(index.read(_INDEX_BYTES))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    return shards <= set(files.names)


def find_cached(repository: str, wanted: str | None) -> tuple[Path, ModelFiles] | None:
    """The snapshot and the model's files in it, if all of them are there.

    Raises: ModelFileError, InvalidRequestError: as ``choose_files``, where the snapshot has models, but no single one
    that fits.
    """
    folder = snapshot(repository)
    if folder is None:
        return None
    files = choose_files(files_below(folder), wanted, repository)
    return (folder, files) if is_complete(folder, files) else None
