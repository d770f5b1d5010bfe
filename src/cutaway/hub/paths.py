"""Where Cutaway keeps what it can make again, fetched models and compiled kernels, and whether it may use the network.

The environment goes in, absolute paths come out; no folder is created here.
"""

import os
from pathlib import Path

from cutaway.errors import InvalidRequestError


def cache_root() -> Path:
    """``$CUTAWAY_CACHE`` if set, else ``$XDG_CACHE_HOME/cutaway``, else ``~/.cache/cutaway``; absolute.

    A relative ``XDG_CACHE_HOME`` is ignored, as the XDG Base Directory Specification 0.8 demands. A variable
    that is set to nothing counts as not set.
    """
    try:
        if chosen := os.environ.get("CUTAWAY_CACHE"):
            return Path(chosen).expanduser().absolute()
        shared = os.environ.get("XDG_CACHE_HOME", "")
        if os.path.isabs(shared):
            return Path(shared) / "cutaway"
        return (Path.home() / ".cache" / "cutaway").absolute()
    except RuntimeError as error:  # no HOME, and the user id has no entry in the password database
        raise InvalidRequestError(
            f"the cache folder cannot be placed: {error} Set CUTAWAY_CACHE to a folder that can be written."
        ) from error


def models_dir() -> Path:
    """The folder of fetched model files."""
    return cache_root() / "models"


def kernels_dir() -> Path:
    """The folder of compiled kernels."""
    return cache_root() / "kernels"


def offline_variable() -> str | None:
    """The variable that forbids the network, the package index and the hub alike; None where none does.

    ``CUTAWAY_OFFLINE`` does if it is set to anything but ``0``. The hub's client reads ``HF_HUB_OFFLINE``, or where
    that is empty ``TRANSFORMERS_OFFLINE``, and takes 1, on, yes and true for a yes; so do we.
    """
    if os.environ.get("CUTAWAY_OFFLINE", "") not in ("", "0"):
        return "CUTAWAY_OFFLINE"
    name = "HF_HUB_OFFLINE" if os.environ.get("HF_HUB_OFFLINE") else "TRANSFORMERS_OFFLINE"
    return name if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") else None
