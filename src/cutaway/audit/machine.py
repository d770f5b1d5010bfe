"""What this machine and installation are: versions, processor, memory, caches, models.

In: nothing but the system. Out: a ``MachineReport``. Nothing is created, fetched or compiled.
"""

import os
import platform
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cutaway
from cutaway.hub import cache_root, installed, kernels_dir
from cutaway.memory.available import available_memory
from cutaway.ops.cpu.processors import cgroup_quota, default_threads
from cutaway.ops.kernel_files import CODE, LIBRARIES, stamp
from cutaway.ops.numerics import NUMERICS_VERSION
from cutaway.ops.simd.host import MACHINE, processor_features, processor_name
from cutaway.ops.simd.lowering import LOWERING, lacking


@dataclass(frozen=True)
class CacheReport:
    """The cache folder."""

    path: str
    bytes: int
    writable: bool
    kernels: dict[str, int]  # compiled kernels of this stamp by name: signatures of each
    stamp: str


@dataclass(frozen=True)
class ModelFile:
    """A model in one of the caches."""

    name: str
    path: str
    bytes: int


@dataclass(frozen=True)
class MachineReport:
    """This machine and this installation."""

    cutaway: str
    python: str
    system: str
    libraries: dict[str, str]
    numerics_version: int
    processor: str  # as Linux or LLVM names it
    lowering: str
    best_lowering: str  # of this machine's kind
    lacking: tuple[str, ...]  # features that it wants
    processors: int
    affinity: int
    quota: float | None  # processors that the control group allows
    threads: int  # of a team by default
    memory_bytes: int
    memory_available: int | None
    cache: CacheReport
    models: tuple[ModelFile, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder; 0 where there is none."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def is_writable(folder: Path) -> bool:
    """Whether files can be made in the folder, or, before it exists, in the nearest folder above it."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def cached_kernels(folder: Path) -> dict[str, int]:
    """The compiled functions in a stamp's folder: ``module.function``, and for how many signatures.

    A file's name is ``module.function-digest.digest-signature.code``.
    """
    return dict(sorted(Counter(path.name.partition("-")[0] for path in folder.glob(f"[!.]*.{CODE}")).items()))


def machine_report() -> MachineReport:
    """Look."""
    meminfo = Path("/proc/meminfo")
    best, missing = lacking(MACHINE, processor_features())
    processors = os.cpu_count() or 1
    return MachineReport(
        cutaway=cutaway.__version__,
        python=platform.python_version(),
        system=platform.platform(),
        libraries={name: version(name) for name in LIBRARIES},
        numerics_version=NUMERICS_VERSION,
        processor=processor_name(),
        lowering=LOWERING,
        best_lowering=best,
        lacking=missing,
        processors=processors,
        affinity=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else processors,
        quota=cgroup_quota(),
        threads=default_threads(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        memory_available=available_memory(meminfo.read_text()) if meminfo.exists() else None,
        cache=CacheReport(
            path=str(cache_root()),
            bytes=folder_bytes(cache_root()),
            writable=is_writable(cache_root()),
            kernels=cached_kernels(kernels_dir() / stamp()),
            stamp=stamp(),
        ),
        models=tuple(ModelFile(model.name, str(model.path), model.bytes) for model in installed()),
    )
