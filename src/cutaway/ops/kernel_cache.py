"""The decorators that make functions compiled ones, and the cache on disk that their code comes from.

In: Python functions. Out: ``jit``, ``root_jit`` and ``inner_jit`` give functions that run without the GIL, ``kernel`` a
``Kernel`` that is called by its address, and ``inlined`` a helper that becomes part of these. Code that is in the cache
is loaded without the compiler (``ops.compiler``), which is imported when the first piece is missing.
"""

import ctypes
import functools
import hashlib
import inspect
import json
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

from cutaway.ops import kernel_files
from cutaway.ops.arguments import Argument, make_argument
from cutaway.ops.machine_code import MachineCode

_Function = TypeVar("_Function", bound=Callable[..., Any])

ENTRY: Final = "entry"
"""The name of the one function of a piece of machine code that is called from outside."""
_ENTRY_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p)
_RESULTS: Final = {"int": "q", "uint": "Q", "bool": "?7x", "float32": "f4x", "float64": "d"}
"""How the word that holds a result of each kind is read."""

_listeners: list[Callable[[str], None]] = []  # the cache's hook: who hears of what is compiled
_lock = threading.RLock()


@contextmanager
def compilations(heard: Callable[[str], None]) -> Iterator[None]:
    """``heard(name)`` for each function that is compiled, not loaded from the cache, while the block runs."""
    _listeners.append(heard)
    try:
        yield
    finally:
        _listeners.remove(heard)


def tell(name: str) -> None:
    """Let the listeners hear that a function is about to be compiled."""
    for heard in list(_listeners):
        heard(name)


class _Source:
    """A Python function that is compiled, or becomes part of what is compiled."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__name__, self.__qualname__ = function.__name__, function.__qualname__
        self.__doc__, self.__module__ = function.__doc__, function.__module__
        self.py_func = function

    @functools.cached_property
    def place(self) -> str:
        """What the names of its files in the cache begin with: a name to read, then digests.

        By its module, not by its file: an installation in another folder has the same code under the same stamp.
        """
        function = self.py_func
        full_name = f"{function.__module__}:{function.__qualname__}"
        code, bound = function.__code__, [cell.cell_contents for cell in function.__closure__ or ()]
        # Kernels close over numbers only. What a function calls is a source of the package, which the stamp covers.
        numbers = [each for each in (*code.co_consts, *bound) if isinstance(each, int | float | str)]
        content = code.co_code + repr((code.co_names, numbers)).encode()
        digests = (hashlib.sha256(text).hexdigest()[:12] for text in (full_name.encode(), content))
        return f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}-{'.'.join(digests)}"


class Part(_Source):
    """A function that compiled code may call."""

    @property
    def _numba_type_(self) -> Any:
        """What Numba takes the function for, where a compiled one calls it."""
        from cutaway.ops.compiler import part

        return part(self)._numba_type_


class Compiled(Part):
    """A compiled function. Called from Python, it is compiled, or found in the cache, for the types of its arguments;
    a compiled function that calls it has it linked in.
    """

    def __init__(self, function: Callable[..., Any], is_part: bool = True) -> None:
        super().__init__(function)
        self.is_part = is_part  # of other compiled functions
        self._entries: dict[tuple[str, ...], Entry] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Call it, compiled: on first use for these types it is compiled, or found in the cache."""
        entry, words, _made = self.made_ready(*arguments)
        return entry(words)

    def made_ready(self, *arguments: Any) -> tuple["Entry", bytes, list[Argument]]:
        """A call that is not made yet: the way in for arguments of these types, their words, and what must live until
        it has been made.
        """
        made = [make_argument(each) for each in arguments]
        types = tuple([each.type for each in made])
        entry = self._entries.get(types)
        if entry is None:
            entry = self._find(types, made)
        return entry, b"".join([each.words for each in made]), made

    def prepare(self, *arguments: Any) -> None:
        """Compile, or find in the cache, for the types of these arguments; nothing is called."""
        made = [make_argument(each) for each in arguments]
        types = tuple(each.type for each in made)
        if types not in self._entries:
            self._find(types, made)

    @property
    def signatures(self) -> list[tuple[str, ...]]:
        """The types of arguments for which it is compiled in this process."""
        return list(self._entries)

    def is_kept(self, *arguments: Any) -> bool:
        """Whether the function is compiled for arguments of these types, in this process or in the cache on disk."""
        types = tuple(make_argument(each).type for each in arguments)
        return types in self._entries or kernel_files.path(self.place, types).exists()

    def _find(self, types: tuple[str, ...], made: list[Argument]) -> "Entry":
        with _lock:
            if types not in self._entries:
                self._entries[types] = Entry(*_content(self, types, lambda: self._compiled(made)))
            return self._entries[types]

    def _compiled(self, made: list[Argument]) -> tuple[list[str], bytes]:
        from cutaway.ops.compiler import compile_entry

        return compile_entry(self, [each.value for each in made])


class ReadyCall(NamedTuple):
    """A call whose arguments are in place. ``call`` runs no bytecode of Python where the function is compiled."""

    call: Callable[[], Any]
    finish: Callable[[Any], Any]
    """What the function returns, from what ``call`` returned; raises what went wrong in compiled code."""


def ready_call(function: Callable[..., Any], *arguments: Any) -> ReadyCall:
    """A call to be made later, by whichever thread."""
    if not isinstance(function, Compiled):
        return ReadyCall(partial(function, *arguments), lambda result: result)
    entry, words, made = function.made_ready(*arguments)
    call, room = entry.ready(words)

    def finish(status: int) -> Any:
        made.clear()  # what had to live until now
        return entry.result(status, room)

    return ReadyCall(call, finish)


class Inner(Part):
    """A compiled function that has no way in from Python."""

    def __call__(self, *arguments: Any) -> None:
        """Raises TypeError."""
        raise TypeError(
            f"{self.py_func.__name__} is for compiled code alone: call it from a function that is compiled."
        )


class Inlined(_Source):
    """A helper whose body becomes part of each function that calls it, before anything is compiled."""

    targetoptions: Final = {"inline": "always"}  # what Numba looks for

    def __call__(self, *arguments: Any) -> Any:
        """In Python: the function itself, of numbers alone."""
        return self.py_func(*arguments)

    @property
    def _numba_type_(self) -> Any:
        from cutaway.ops.compiler import inline

        return inline(self)._numba_type_


class Kernel(_Source):
    """A kernel that is called by its address: ``void kernel(int64, …)``, compiled when the address is first asked for.

    A format or a data type that no loaded model uses costs no compilation, and the forward, which calls by address,
    is compiled once for all of them.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._code: MachineCode | None = None

    def _compiled(self) -> tuple[list[str], bytes]:
        from cutaway.ops.compiler import compile_kernel

        return [], compile_kernel(self.py_func)

    @property
    def types(self) -> tuple[str, ...]:
        """Of its arguments."""
        return ("int64",) * len(inspect.signature(self.py_func).parameters)

    @property
    def address(self) -> int:
        """The address of the compiled C function."""
        with _lock:  # code that is replaced by another thread's would be gone, and its address in use
            if self._code is None:
                self._code = MachineCode(_content(self, self.types, self._compiled)[1])
            return self._code.addresses[ENTRY]


class Entry:
    """The way into a compiled function: called with its arguments' words, it returns what the function does."""

    def __init__(self, kinds: list[str], object_file: bytes) -> None:
        self._code = MachineCode(object_file)
        self.address: int = self._code.addresses[ENTRY]
        self._call = _ENTRY_TYPE(self.address)
        self._results = struct.Struct("<" + "".join(_RESULTS[kind] for kind in kinds))
        self.num_results = len(kinds)  # words
        self._room = ctypes.c_int64 * len(kinds)

    def __call__(self, words: bytes) -> Any:
        """Call the machine code. words: the arguments, 8 bytes each (``ops.arguments``)."""
        room = self._room()
        return self.result(self._call(words, room), room)

    def ready(self, words: bytes) -> tuple[Callable[[], int], Any]:
        """A call to be made later, which returns the status, and the words that it will write."""
        room = self._room()
        return partial(self._call, words, room), room

    def result(self, status: int, words: Any) -> Any:
        """What the function returns, from the entry's status and the words that it wrote: any buffer."""
        if status:
            raise RuntimeError(f"compiled code ended with status {status}: a fault of Cutaway. Please report it.")
        found = self._results.unpack(words)
        return found if len(found) > 1 else found[0] if found else None


def _content(
    source: _Source, types: tuple[str, ...], compiled: Callable[[], tuple[list[str], bytes]]
) -> tuple[list[str], bytes]:
    """What the cache has for the function, or what the compiler makes of it: the kinds of results, an object file."""
    path = kernel_files.path(source.place, types)
    content = kernel_files.load(path)
    if content is None:
        kinds, object_file = compiled()
        content = json.dumps(kinds).encode() + b"\n" + object_file
        kernel_files.save(path, content)
    header, _, object_file = content.partition(b"\n")
    return json.loads(header), object_file


def jit(function: _Function) -> _Function:
    """Decorator: a function that compiled code calls, and Python, too: an operation, a step of the sampler. It is
    compiled when it is first called with arguments of new types, and runs without the GIL.
    """
    return cast(_Function, Compiled(function))


def root_jit(function: _Function) -> _Function:
    """Decorator: a function that Python alone calls, and that no other is made of: the forward, the sampler. With all
    that it calls it becomes one piece of code. Otherwise as ``jit``.
    """
    return cast(_Function, Compiled(function, is_part=False))


def inner_jit(function: _Function) -> _Function:
    """Decorator: a function that compiled code alone calls; called from Python it raises TypeError."""
    return cast(_Function, Inner(function))


def inlined(function: _Function) -> _Function:
    """Decorator: a helper whose body becomes part of each kernel that calls it, before anything is compiled.

    For helpers that take or give vectors, which would go through memory between compiled functions, and for those that
    compute addresses (``simd.rows.load_at`` says why).
    """
    return cast(_Function, Inlined(function))


def kernel(function: Callable[..., None]) -> Kernel:
    """Decorator: a kernel to be called by its address."""
    return Kernel(function)


def compile_all(kernels: Iterable[Kernel]) -> None:
    """Compile each of the kernels, or load it from the cache."""
    for each in kernels:
        _ = each.address
