"""The Hugging Face hub: what a repository has, and its files brought into the hub's cache on this machine.

In: a repository's name, then names of files. Out: a listing, then the folder that holds the files, each checked by size
and, if it is a large one, by SHA-256. The client is ``huggingface_hub``, whose cache other programs share; its settings
hold: HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE. It is imported when a name leads here, not before.
"""

import errno
import hashlib
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutaway.errors import CapacityError, CutawayError, DownloadError
from cutaway.hub.paths import offline_variable
from cutaway.hub.progress import Progress

BRANCH = "main"
ENDPOINT = "https://huggingface.co"  # unless HF_ENDPOINT says another
_CHUNK = 1 << 20


@dataclass(frozen=True)
class RepositoryFile:
    """A file as the hub describes it; ``sha256`` is None for small files, which the hub keeps in git itself."""

    size: int
    sha256: str | None


@dataclass(frozen=True)
class Listing:
    """What a repository's branch has at one commit."""

    repository: str
    commit: str
    files: Mapping[str, RepositoryFile]

    @property
    def sizes(self) -> dict[str, int]:
        """Path in the repository → bytes."""
        return {name: file.size for name, file in self.files.items()}


def hub_cache() -> Path:
    """The folder of the hub's cache, by its client's own settings."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def list_files(repository: str) -> Listing:
    """What the repository has now.

    Raises: DownloadError: offline, no such repository, no access, or no connection.
    """
    from huggingface_hub import HfApi

    with _explained(repository):
        info = HfApi().model_info(repository, revision=BRANCH, files_metadata=True)
        files = {
            each.rfilename: RepositoryFile(
                -1 if each.size is None else each.size, each.lfs.sha256 if each.lfs else None
            )
            for each in info.siblings or ()
            if _is_plain_name(each.rfilename)
        }
        if not isinstance(info.sha, str) or not info.sha.isalnum():
            raise DownloadError(f"the answer about {repository} names no commit. {_is_a_hub()}")
        if any(type(each.size) is not int or each.size < 0 for each in files.values()):
            raise DownloadError(f"the answer about {repository} has sizes that are none. {_is_a_hub()}")
        return Listing(repository, info.sha, files)


def _is_plain_name(name: Any) -> bool:
    """Whether a file of that name lies in the repository's folder, and can be shown. Others are none of a model's."""
    return isinstance(name, str) and name.isprintable() and not {"", ".", ".."} & set(name.split("/"))


def download(listing: Listing, names: Sequence[str], progress: Progress) -> Path:
    """The folder with these files of the listing; those that are not in the cache yet are fetched.

    A connection that breaks is resumed where it broke. What ends the fetch for good, Ctrl-C included, leaves whole
    files only. Files that are whole are not fetched again.

    Raises: DownloadError: the connection, the hub, or a file that is not what the hub said. CapacityError: the disk.
    """
    from huggingface_hub import hf_hub_download

    repository = listing.repository
    with _explained(repository), _plain_tags():
        cached = {name: _cached_size(listing, name) for name in names}
        missing = [name for name in names if cached[name] != listing.files[name].size]
        total = sum(listing.files[name].size for name in missing)
        _require_space(total)
        done = 0
        folders = set()
        for name in names:
            path = Path(
                hf_hub_download(
                    repository,
                    name,
                    revision=BRANCH,  # by its name, so that the cache notes its commit
                    tqdm_class=_bar_class(progress, done, total),
                    force_download=name in missing and cached[name] is not None,
                )
            )
            if name in missing:
                _check_place(path, repository, name)
                _check(path, listing.files[name], name, progress)
                done += listing.files[name].size
            folders.add(path.parents[name.count("/")])
            if {folder.name for folder in folders} != {listing.commit}:
                raise DownloadError(f"{repository} changed while it was being fetched. Try again.")
        return folders.pop()


def _cached_size(listing: Listing, name: str) -> int | None:
    """The bytes of the file as it is in the cache, None where it isn't."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(listing.repository, name, revision=listing.commit)
    return os.path.getsize(path) if isinstance(path, str) else None


@contextmanager
def _plain_tags() -> Iterator[None]:
    """The client names what it stores by the tags that the server gives; none may lead out of the cache."""
    from huggingface_hub import get_session

    client: Any = get_session()

    def hooks(change: str) -> None:
        responses = list(client.event_hooks["response"])
        getattr(responses, change)(_refuse_path_as_tag)
        client.event_hooks = {**client.event_hooks, "response": responses}

    hooks("append")
    try:
        yield
    finally:
        hooks("remove")


def _refuse_path_as_tag(response: Any) -> None:
    for header in ("ETag", "X-Linked-Etag"):
        tag = response.headers.get(header, "").removeprefix("W/").strip('"')
        if response.request.method == "HEAD" and ("/" in tag or "\\" in tag or tag in (".", "..")):
            raise DownloadError(
                f"{response.request.url.host} answered with the tag {tag[:80]!r}, a path. {_is_a_hub()}"
            )


def _check_place(path: Path, repository: str, name: str) -> None:
    """Whatever is beside the repository's own folder is neither read nor deleted."""
    blob = os.path.realpath(path)
    folder = os.path.join(os.path.realpath(hub_cache()), f"models--{repository.replace('/', '--')}")
    inside = (os.path.realpath(os.path.join(folder, each)) for each in ("blobs", "snapshots"))
    if not any(os.path.commonpath((blob, each)) == each for each in inside):
        path.unlink(missing_ok=True)
        raise DownloadError(
            f"{name} of {repository} was stored at {blob}, outside of the cache's folder of that repository. "
            f"{_is_a_hub()}"
        )


def _check(path: Path, expected: RepositoryFile, name: str, progress: Progress) -> None:
    """Compare a fetched file with what the hub said. It is deleted if it is wrong, or the check is interrupted."""
    try:
        size = path.stat().st_size
        if size != expected.size:
            raise DownloadError(f"{name} has {size} bytes; the hub says {expected.size}. It is deleted; try again.")
        if expected.sha256 is None:
            return
        digest, done = hashlib.sha256(), 0
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                done += len(chunk)
                progress("check", done, size)
        if digest.hexdigest() != expected.sha256:
            raise DownloadError(
                f"{name} has the SHA-256 {digest.hexdigest()}; the hub says {expected.sha256}. It is deleted; try "
                "again."
            )
    except BaseException:
        blob = Path(os.path.realpath(path))
        path.unlink(missing_ok=True)
        blob.unlink(missing_ok=True)
        raise


def _require_space(needed: int) -> None:
    folder = hub_cache()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CapacityError(
            f"{needed} bytes are needed on the disk of {hub_cache()}, {free} are free. Free some space (cutaway ls "
            "lists models, cutaway rm removes one), or set HF_HOME to a folder on a larger disk."
        )


def _bar_class(progress: Progress, before: int, total: int) -> type[Any]:
    """What the client takes for a class of progress bars: it tells ours. before: bytes of the files before this one."""

    class Bar:
        def __init__(self, *_: Any, total: float | None = None, initial: float = 0, **__: Any) -> None:
            self.total, self.n = total, initial

        def update(self, count: float | None = 1) -> None:
            self.n += count or 0
            progress("download", before + int(self.n), total)

        # The client counts bytes of the network apart from bytes of the file in some transfers; these are not shown.
        def update_transfer(self, count: float) -> None: ...

        def set_description(self, *_: Any, **__: Any) -> None: ...

        def set_description_str(self, *_: Any, **__: Any) -> None: ...

        def set_postfix_str(self, *_: Any, **__: Any) -> None: ...

        def refresh(self, *_: Any, **__: Any) -> None: ...

        def reset(self, *_: Any, **__: Any) -> None: ...

        def close(self) -> None: ...

        @property
        def format_dict(self) -> dict[str, Any]:
            return {"rate": None}

        def __enter__(self) -> "Bar":
            return self

        def __exit__(self, *exception: object) -> None: ...

    return Bar


@contextmanager
def _explained(repository: str) -> Iterator[None]:
    """The client's errors as ours, in one sentence each; its own messages on standard error are left out."""
    from huggingface_hub import constants, errors

    if variable := offline_variable():
        raise DownloadError(
            f"{repository} is not in the cache {hub_cache()}, and {variable} forbids the network. Unset it and try "
            "again, or name a file."
        )
    page = f"{constants.ENDPOINT}/{repository}"
    log = logging.getLogger("huggingface_hub")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    except CutawayError:
        raise
    except errors.GatedRepoError as error:
        raise DownloadError(
            f"{repository} is gated: its authors want you to accept their terms. Do so at {page}, then set HF_TOKEN "
            f"to a token of your account{_token_state()}."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise DownloadError(
            f"{constants.ENDPOINT} has no repository {repository!r}, or it is private. Check the spelling; for a "
            f"private one set HF_TOKEN to a token that may read it{_token_state()}."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise DownloadError(f"{repository} has no branch {BRANCH!r}: it is empty. Name another repository.") from error
    except errors.HfHubHTTPError as error:
        raise DownloadError(_refused(repository, error.response)) from error
    except errors.HFValidationError as error:
        raise DownloadError(f"{repository!r} can't be a repository's name: {_one_line(error)}") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CapacityError(
                f"the disk of {hub_cache()} is full ({error.strerror}); {repository} was not fetched. Free some "
                "space, or set HF_HOME to a folder on a larger disk."
            ) from error
        if error.errno is not None and error.filename is not None:
            raise DownloadError(
                f"{repository} can't be stored: {error}. Set HF_HOME to a folder that can be written."
            ) from error
        raise DownloadError(_unreachable(repository, error)) from error
    except Exception as error:  # the client's own transport, whose errors have no common base
        raise DownloadError(_unreachable(repository, error)) from error
    finally:
        log.setLevel(level)


def _refused(repository: str, response: Any) -> str:
    status = response.status_code
    where = f"{response.request.url.host} answered {status} {response.reason_phrase} about {repository}"
    if status == 401:
        return f"{where}: the token in HF_TOKEN, or of `hf auth login`, is not valid. Set a valid one, or none."
    if status == 403:
        return f"{where}: the token may not read it. Set HF_TOKEN to one that may."
    if status == 429:
        return f"{where}: too many requests. Wait some minutes, or set HF_TOKEN: signed in, more are allowed."
    return f"{where}. Try again later."


def _unreachable(repository: str, error: Exception) -> str:
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return (
        f"{repository} was not fetched: {type(cause).__name__}: {_one_line(cause)}. If the hub can't be reached, "
        f"this machine is offline or needs a proxy (https_proxy) or a mirror (HF_ENDPOINT).{_endpoint()}"
    )


def _is_a_hub() -> str:
    """Advice on an answer that no hub gives."""
    return _endpoint().strip() or "Something on the way, as a proxy, answers in the hub's place; try another network."


def _endpoint() -> str:
    """A sentence on the hub's address, where it is the user's choice."""
    from huggingface_hub import constants

    if constants.ENDPOINT == ENDPOINT:
        return ""
    return f" HF_ENDPOINT is {constants.ENDPOINT}; it must speak the hub's API."


def _token_state() -> str:
    from huggingface_hub import get_token

    return " (the present one has no access)" if get_token() else " (there is none now)"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300].rstrip(".")
