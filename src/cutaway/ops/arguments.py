"""A call's arguments as compiled code takes them: a row of 8-byte words, and the name of their types.

In: numbers, arrays, records of NumPy, tuples and named tuples of these. Out: an ``Argument``. The order of the words is
that in which Numba flattens a value (its data models): an array is seven words and two more for each further
dimension, a record its address, a tuple what its items are.
"""

import ctypes
import struct
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

_Tuple = TypeVar("_Tuple", bound=tuple[Any, ...])
_WORD, _DOUBLE = struct.Struct("<q"), struct.Struct("<d")
_C_ORDER, _FORTRAN_ORDER, _ALIGNED, _WRITABLE = 0x1, 0x2, 0x100, 0x400  # of numpy's flags
_USUAL = _C_ORDER | _WRITABLE


class Argument(NamedTuple):
    """A value, made ready to be passed."""

    type: str  # equal for two values if the same compiled code serves both
    words: bytes
    value: Any
    kept: Any = None  # what else the words hold addresses in, and must live as long


class _Kept:
    """Of a tuple that is made ready once."""

    @cached_property
    def flattened(self) -> tuple[str, bytes, Any]:
        """The tuple's type, its words, and what these need. Not the tuple: a cycle would keep its arrays alive."""
        made = _tuple(self)
        return made.type, made.words, made.kept

    def __getstate__(self) -> None:
        """A copy has other arrays, at other addresses."""


def kept(named_tuple: type[_Tuple]) -> type[_Tuple]:
    """Decorator of a named tuple's class, whose values are passed again and again: each is made ready once."""
    names = {"__doc__": named_tuple.__doc__, "__module__": named_tuple.__module__}
    return cast(type[_Tuple], type(named_tuple.__name__, (_Kept, named_tuple), names))


def make_argument(value: Any) -> Argument:
    """Flatten a value; an ``Argument`` is returned as it is. Raises TypeError for what compiled code can't take,
    OverflowError for an integer of more than 64 bits.
    """
    kind = type(value)
    if kind is Argument:
        made: Argument = value
        return made
    if kind is int:
        if not -(2**63) <= value < 2**63:
            raise OverflowError(f"{value} does not fit into 64 bits")
        return Argument("int64", _WORD.pack(value), value)
    if kind is np.ndarray:
        name, words = _array_type(value.dtype, value.ndim, value.flags.num)
        size = value.size
        usual = size and value.flags.num & _USUAL == _USUAL  # then there is a way to the address that takes a third
        address = ctypes.addressof(ctypes.c_char.from_buffer(value)) if usual else value.ctypes.data
        packed = words.pack(0, 0, size, value.itemsize, address, *value.shape, *value.strides)
        return Argument(name, packed, value)
    if isinstance(value, _Kept):
        name, packed, needed = value.flattened
        return Argument(name, packed, value, needed)
    if isinstance(value, tuple):
        return _tuple(value)
    if isinstance(value, bool | np.bool_):
        return Argument("bool", _WORD.pack(bool(value)), value)
    if kind is float:
        return Argument("float64", _DOUBLE.pack(value), value)
    if isinstance(value, np.void):
        record = np.array(value)  # a copy: a scalar of NumPy doesn't tell where its bytes lie
        return Argument(_record_type(value.dtype), _WORD.pack(record.ctypes.data), value, record)
    if isinstance(value, np.integer | np.floating) and value.itemsize <= 8:
        return Argument(value.dtype.name, value.tobytes().ljust(8, b"\0"), value)
    raise TypeError(f"compiled code takes numbers, arrays, records and tuples, not {kind.__qualname__}")


def _tuple(items: Any) -> Argument:
    made = [make_argument(item) for item in items]
    name = f"{type(items).__qualname__}({', '.join([each.type for each in made])})"
    return Argument(name, b"".join([each.words for each in made]), items, [each.kept for each in made])


@cache
def _record_type(dtype: "np.dtype[Any]") -> str:
    """The name of a record's type."""
    return f"record {dtype.descr}"


@cache
def _array_type(dtype: "np.dtype[Any]", rank: int, flags: int) -> tuple[str, struct.Struct]:
    """The name of an array's type, and its words: two owners (none), how many elements of how many bytes, the address,
    shape, strides in bytes.
    """
    if not dtype.isnative:
        raise TypeError(f"compiled code takes numbers in the processor's own byte order, not {dtype.str}")
    layout = "C" if flags & _C_ORDER else "F" if flags & _FORTRAN_ORDER else "A"
    element = dtype.name if dtype.names is None else str(dtype.descr)
    access = ("" if flags & _WRITABLE else " read-only") + ("" if flags & _ALIGNED else " unaligned")
    return f"{element}[{rank}]{layout}{access}", struct.Struct(f"<{5 + 2 * rank}q")
