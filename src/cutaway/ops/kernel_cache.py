"""The decorators that compile kernels: Numba's compiler, with a cache of our own on disk (``kernel_files``).

In: Python functions. Out: ``jit``, ``root_jit`` and ``inner_jit`` give functions that run without the GIL, ``kernel`` a
``Kernel`` that is called by its address, and ``inlined`` a helper that becomes part of these.
"""

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, cast

import llvmlite.binding as llvm
import numba
from numba.core import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.ccallback import CFunc
from numba.core.compiler import Compiler, CompilerBase
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

from cutaway.ops.kernel_files import KernelFiles, cache_folder, stamp

_Function = TypeVar("_Function", bound=Callable[..., Any])

PARTS_LEVEL: Final = 1  # of LLVM's passes, 0 … 3


class _Locator:
    """Numba's name for what knows where a function's compiled code lies."""

    def __init__(self, function: Callable[..., Any], source: str) -> None:
        # By its module, not by its file: an installation in another folder has the same code under the same stamp.
        place = f"{function.__module__}:{function.__qualname__}"
        self._disambiguator = hashlib.sha256(place.encode()).hexdigest()[:12]

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
    """Numba's cache of compiled functions, in our folder."""

    _locator_classes: Any = (_Locator,)


class _RootCacheImpl(_KernelCacheImpl):
    """Of functions that no other one is made of. Numba keeps LLVM's code beside the machine's, to link it into callers;
    without callers, the names that it defines are enough, and a start reads a third less.
    """

    def reduce(self, data: Any) -> Any:
        """What is written: as Numba's own, with empty functions in place of the code to be linked."""
        (name, kind, (machine_code, _)), *others = super().reduce(data)  # type: ignore[no-untyped-call]
        names = [function.name for function in data.library.get_defined_functions()]
        stubs = "\n".join(f'define void @"{name}"() {{ ret void }}' for name in names)
        return ((name, kind, (machine_code, llvm.parse_assembly(stubs).as_bitcode())), *others)


class KernelCache(FunctionCache):
    """Numba's cache of one function, with our folder and our files."""

    _impl_class = _KernelCacheImpl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        files: Any = KernelFiles(self._cache_path, self._impl.filename_base)
        self._cache_file = files

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What was saved for the signature, or None.

        Numba's own first fills its registries and compiles its runtime for the process, which takes 40 MB. Code that is
        loaded needs neither.
        """
        return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]


class RootCache(KernelCache):
    """The cache of a root: of a function that no other one is made of."""

    _impl_class = _RootCacheImpl


class _PartCompiler(Compiler):
    """Numba's compiler, with LLVM's passes at level 1: for functions that run as parts of a root, in which they are
    optimised once more, at Numba's own level.
    """

    def compile_extra(self, func: Any) -> Any:
        """Compile. The level is a setting of the process, so it is changed under the lock that Numba compiles under."""
        config: Any = numba.config
        with global_compiler_lock:
            level, config.OPT = config.OPT, type(config.OPT)(PARTS_LEVEL)
            try:
                return super().compile_extra(func)  # type: ignore[no-untyped-call]
            finally:
                config.OPT = level


_OPTIONS: Final = {
    "nopython": True,
    "error_model": "numpy",
    "boundscheck": False,
    "no_cfunc_wrapper": True,  # nobody passes a compiled function as an argument
    "_nrt": False,  # kernels allocate nothing, so no reference is counted
}


class _InnerDispatcher(CPUDispatcher):
    """Numba's dispatcher of a function that has no way in from Python."""

    def __call__(self, *arguments: Any) -> None:
        raise TypeError(
            f"{self.py_func.__name__} is for compiled code alone: call it from a function that is compiled."
        )


def jit(function: _Function) -> _Function:
    """Decorator: a function that compiled code calls, and Python, too: an operation, a step of the sampler. It is
    compiled when it is first called with arguments of new types, and runs without the GIL.
    """
    return _dispatcher(CPUDispatcher, KernelCache(function), _PartCompiler, function, no_cpython_wrapper=False)


def root_jit(function: _Function) -> _Function:
    """Decorator: a function that Python alone calls, and that no other is made of: the forward, the sampler. With all
    that it calls it becomes one piece of code. Otherwise as ``jit``.
    """
    return _dispatcher(CPUDispatcher, RootCache(function), Compiler, function, no_cpython_wrapper=False)


def inner_jit(function: _Function) -> _Function:
    """Decorator: a function that compiled code alone calls. Without a way in from Python it is compiled faster; called
    from Python it raises TypeError.
    """
    return _dispatcher(_InnerDispatcher, KernelCache(function), _PartCompiler, function, no_cpython_wrapper=True)


def _dispatcher(
    kind: type[CPUDispatcher],
    cache: KernelCache,
    compiler: type[CompilerBase],
    function: _Function,
    no_cpython_wrapper: bool,
) -> _Function:
    """What ``numba.njit(cache=True)`` does, with a dispatcher, a cache and a compiler of ours."""
    options = {**_OPTIONS, "nogil": True, "no_cpython_wrapper": no_cpython_wrapper}
    dispatcher: Any = kind(function, {}, options, pipeline_class=compiler)
    dispatcher._cache = cache
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
        compiled: Any = CFunc(self.function, ((types.int64,) * count, types.void), {}, dict(_OPTIONS))
        compiled._cache = RootCache(self.function)
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
