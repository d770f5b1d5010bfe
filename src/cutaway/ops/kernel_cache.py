"""The decorators that compile kernels, and the cache on disk that keeps what they compiled.

In: Python functions. Out: ``jit`` gives a function that runs without the GIL; ``kernel_address`` gives the address of
a C function. Compiled code is kept in the user's cache folder, one file a signature, written under another name and
then renamed, so that several processes may compile at once. The folder's name is a stamp over all that the code
depends on.
"""

import atexit
import contextlib
import errno
import functools
import hashlib
import inspect
import os
import pickle
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import llvmlite
import numba
import numpy
from numba.core import serialize, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.ccallback import CFunc

from cutaway.hub.paths import kernels_dir
from cutaway.ops.simd.lowering import LOWERING, processor_features, processor_name

_Function = TypeVar("_Function", bound=Callable[..., Any])

COMPILED_SOURCES: Final = ("ops/**/*.py", "model/forward.py", "model/records.py", "sampling/**/*.py")
"""The package's sources that end up in compiled code."""

STAMP_DIGITS: Final = 20
STALE_AFTER_DAYS: Final = 30


@functools.cache
def stamp() -> str:
    """A digest of everything that compiled code depends on: kernel sources, vocabulary, versions, processor."""
    digest = hashlib.sha256()
    package = Path(__file__).parent.parent
    for pattern in COMPILED_SOURCES:
        for source in sorted(package.glob(pattern)):
            digest.update(source.relative_to(package).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    versions = (sys.version, numba.__version__, llvmlite.__version__, numpy.__version__)
    config: Any = numba.config
    settings = (config.OPT, config.LOOP_VECTORIZE, config.SLP_VECTORIZE)
    digest.update(repr((versions, settings, LOWERING, processor_name(), sorted(processor_features()))).encode())
    return digest.hexdigest()[:STAMP_DIGITS]


@functools.cache
def cache_folder() -> Path:
    """The folder for this stamp, made if need be; a temporary one, with a warning, where the user's cache can't be
    written.
    """
    folder = kernels_dir() / stamp()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o022:  # what lies in it will be executed
            raise PermissionError(errno.EPERM, "others may write it")
        # The folder's date says when it was last used; the ones long unused are removed.
        os.utime(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if folder.is_dir() and error.errno != errno.EPERM:
            return folder  # readable, and perhaps full: what it lacks is compiled again by each process
        warnings.warn(
            f"compiled kernels can't be kept in {folder} ({error.strerror}); they will be compiled again next time. "
            "Set CUTAWAY_CACHE to a folder that can be written.",
            stacklevel=2,
        )
        temporary = Path(tempfile.mkdtemp(prefix="cutaway-kernels-"))
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        return temporary
    _remove_stale(folder.parent)
    return folder


def _remove_stale(kernels: Path) -> None:
    """Remove the folders of stamps that were not used for long: nothing but kernels, in folders that we named."""
    with contextlib.suppress(OSError):  # another process may be doing the same
        for folder in kernels.iterdir():
            ours = re.fullmatch(rf"[0-9a-f]{{{STAMP_DIGITS}}}", folder.name) and not folder.is_symlink()
            if ours and time.time() - folder.stat().st_mtime > STALE_AFTER_DAYS * 86400:
                for kernel_file in folder.glob("*.nbc"):
                    kernel_file.unlink()
                folder.rmdir()


def cache_is_shared() -> bool:
    """Whether other processes find what this one compiles."""
    return cache_folder().parent == kernels_dir()


class _Locator:
    """Numba's name for what knows where a function's compiled code lies."""

    def __init__(self, function: Callable[..., Any], source: str) -> None:
        self._disambiguator = hashlib.sha256(f"{source}:{function.__qualname__}".encode()).hexdigest()[:12]

    @classmethod
    def from_function(cls, function: Callable[..., Any], source: str) -> "_Locator":
        return cls(function, source)

    def ensure_cache_path(self) -> None:
        """Nothing to do: ``cache_folder`` made it."""

    def get_cache_path(self) -> str:
        return str(cache_folder())

    def get_source_stamp(self) -> str:
        return stamp()

    def get_disambiguator(self) -> str:
        return self._disambiguator


class _KernelCacheImpl(CompileResultCacheImpl):
    _locator_classes: Any = (_Locator,)


class _KernelFiles:
    """One file for each signature: a SHA-256, then what it is the digest of.

    Numba's own index file can mix up two signatures when two processes write at once; a damaged file would run.
    """

    def __init__(self, folder: str, base: str) -> None:
        self._folder, self._base = Path(folder), base

    def path(self, key: Any) -> Path:
        """Where the code for this key lies, if it does."""
        return self._folder / f"{self._base}-{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.nbc"

    def load(self, key: Any) -> Any:
        """What was saved under the key, or None: a missing or damaged file is compiled anew and replaced."""
        try:
            content = self.path(key).read_bytes()
        except OSError:
            return None
        digest, data = content[:32], content[32:]
        return pickle.loads(data) if hashlib.sha256(data).digest() == digest else None

    def save(self, key: Any, data: Any) -> None:
        """Write under another name, then rename. Where that fails (disk full, read-only) the kernel lives in memory."""
        path = self.path(key)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        serialized: bytes = serialize.dumps(data)  # type: ignore[no-untyped-call]
        try:
            temporary.write_bytes(hashlib.sha256(serialized).digest() + serialized)
            temporary.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


class KernelCache(FunctionCache):
    """Numba's cache of one function, with our folder and our files."""

    _impl_class = _KernelCacheImpl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        files: Any = _KernelFiles(self._cache_path, self._impl.filename_base)
        self._cache_file = files


def jit(function: _Function) -> _Function:
    """Compile a function when it is first called with arguments of new types; it runs without the GIL."""
    dispatcher: Any = numba.njit(nogil=True, error_model="numpy", boundscheck=False)(function)
    dispatcher._cache = KernelCache(function)
    return cast(_Function, dispatcher)


def inlined(function: _Function) -> _Function:
    """Decorator: a helper whose body becomes part of each kernel that calls it, before anything is compiled.

    For helpers that take or give vectors, which would go through memory between compiled functions, and for those that
    compute addresses (``simd.rows.load_at`` says why).
    """
    return cast(_Function, numba.njit(inline="always")(function))


def is_kept(function: Callable[..., Any], signature: tuple[Any, ...]) -> bool:
    """Whether the cache on disk has the function compiled for arguments of these Numba types."""
    dispatcher: Any = function
    cache = dispatcher._cache
    key = cache._index_key(signature, dispatcher.targetctx.codegen())
    return bool(cache._cache_file.path(key).exists())


class Kernel:
    """A kernel that is called by its address: ``void kernel(int64, …)``, compiled when the address is first asked for.

    A format or a data type that no loaded model uses costs no compilation, and the forward, which calls by address,
    is compiled once for all of them.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    @functools.cached_property
    def _compiled(self) -> Any:
        count = len(inspect.signature(self.function).parameters)
        options = {"nopython": True, "error_model": "numpy", "boundscheck": False}
        compiled: Any = CFunc(self.function, ((types.int64,) * count, types.void), {}, options)
        compiled._cache = KernelCache(self.function)
        compiled.compile()
        return compiled

    @property
    def address(self) -> int:
        """The address of the compiled C function; it stays valid as long as this object lives."""
        return int(self._compiled.address)


def kernel(function: Callable[..., None]) -> Kernel:
    """Decorator: a kernel to be called by its address."""
    return Kernel(function)


def compile_all(kernels: Iterable[Kernel]) -> None:
    """Compile each of the kernels, or load it from the cache."""
    for each in kernels:
        _ = each.address
