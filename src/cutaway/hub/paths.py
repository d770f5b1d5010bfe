"""Where Cutaway keeps its files."""

import os
from pathlib import Path


def cache_root() -> Path:
    """The cache folder."""
    if explicit := os.environ.get("CUTAWAY_CACHE"):
        return Path(explicit)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cutaway"


def models_dir() -> Path:
    """Models."""
    return cache_root() / "models"


def kernels_dir() -> Path:
    """Compiled kernels."""
    return cache_root() / "kernels"
