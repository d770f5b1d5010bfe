"""GGUF metadata: the key-value pairs at the head of a GGUF file.

In: a cursor behind the file's header. Out: a dictionary from key to Python value. Numeric arrays become NumPy
arrays; arrays of strings stay in the file and are decoded when asked for, so that a vocabulary of a quarter
of a million tokens costs one pass over its lengths.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import pairwise
from struct import Struct
from types import MappingProxyType
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from cutaway.formats.cursor import Cursor, shown

ALIGNMENT_KEY = "general.alignment"

MAX_KEY_BYTES = 65_535  # the specification's limit
# No real file comes near these two; they bound the Python objects that a hostile file can make us create.
MAX_ENTRIES = 65_536
MAX_NESTED_ARRAYS = 65_536
MAX_ARRAY_DEPTH = 4

_MIN_ENTRY_BYTES = 8 + 1 + 4 + 1  # length of the key, key, value type, value
_MIN_ARRAY_BYTES = 4 + 8  # element type, number of elements
_LENGTH = Struct("<Q")


class ValueType(IntEnum):
    """The type numbers of metadata values (GGUF specification, ``gguf_metadata_value_type``)."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


_NUMBERS: Mapping[ValueType, np.dtype[Any]] = MappingProxyType(
    {
        ValueType.UINT8: np.dtype("u1"),
        ValueType.INT8: np.dtype("i1"),
        ValueType.UINT16: np.dtype("<u2"),
        ValueType.INT16: np.dtype("<i2"),
        ValueType.UINT32: np.dtype("<u4"),
        ValueType.INT32: np.dtype("<i4"),
        ValueType.FLOAT32: np.dtype("<f4"),
        ValueType.BOOL: np.dtype("?"),
        ValueType.UINT64: np.dtype("<u8"),
        ValueType.INT64: np.dtype("<i8"),
        ValueType.FLOAT64: np.dtype("<f8"),
    }
)


class StringArray(Sequence[str]):
    """The strings of a metadata array, left in the file and decoded when asked for.

    Invalid UTF-8 raises ``ModelFileError`` when the string is read; ``raw`` and ``raw_list`` give any bytes.
    """

    __slots__ = ("_cursor", "_field", "_starts")

    def __init__(self, cursor: Cursor, field: str, starts: npt.NDArray[np.int64]) -> None:
        """``starts: [n + 1]``: file offsets of the strings' length fields, and the end of the last string."""
        self._cursor = cursor
        self._field = field
        self._starts = starts

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __repr__(self) -> str:
        return f"<StringArray {self._field}: {len(self)} strings>"

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._decode(index, self.raw(index))

    def __iter__(self) -> Iterator[str]:
        data, starts = self._cursor.data, self._starts.data
        for index in range(len(self)):
            yield self._decode(index, data[starts[index] + _LENGTH.size : starts[index + 1]])

    def raw(self, index: int) -> bytes:
        """The bytes of one string."""
        index = range(len(self))[index]
        return self._cursor.data[int(self._starts[index]) + _LENGTH.size : int(self._starts[index + 1])]

    def raw_list(self) -> list[bytes]:
        """The bytes of all strings."""
        starts = (self._starts - self._starts[0]).tolist()
        data = self._cursor.data[int(self._starts[0]) : int(self._starts[-1])]
        return [data[start + _LENGTH.size : end] for start, end in pairwise(starts)]

    def _decode(self, index: int, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            limit = f"it must be UTF-8 ({error.reason} at byte {error.start})"
            raise self._cursor.error(f"element {index} of {self._field}", shown(raw), limit) from None


# A nested array is a tuple of arrays.
MetadataValue: TypeAlias = bool | int | float | str | npt.NDArray[Any] | StringArray | tuple["MetadataValue", ...]


class MetadataReader:
    """Reads metadata values at a cursor; counts nested arrays over the whole file."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._nested_arrays = 0

    def entries(self, count: int) -> dict[str, MetadataValue]:
        """The next ``count`` key-value pairs; ``ModelFileError`` for whatever breaks the specification."""
        cursor = self._cursor
        cursor.check_count("number of metadata entries", count, _MIN_ENTRY_BYTES, MAX_ENTRIES)
        metadata: dict[str, MetadataValue] = {}
        for number in range(count):
            key = cursor.name(f"key {number} of the metadata", MAX_KEY_BYTES)
            field = f"metadata {shown(key)}"
            if key in metadata:
                raise cursor.error(f"{field}, entry {number},", "a duplicate", "keys must be unique")
            value_type = self._value_type(f"type of {field}")
            if key == ALIGNMENT_KEY and value_type != ValueType.UINT32:
                raise cursor.error(f"type of {field}", value_type.name, "it must be UINT32")
            metadata[key] = self._value(value_type, field)
        return metadata

    def _value_type(self, field: str) -> ValueType:
        number = self._cursor.u32(field)
        try:
            return ValueType(number)
        except ValueError:
            raise self._cursor.error(
                field,
                str(number),
                f"known types are {min(ValueType).value} to {max(ValueType).value}",
                "The file is damaged or newer than this reader: download it again, or update Cutaway.",
            ) from None

    def _value(self, value_type: ValueType, field: str) -> MetadataValue:
        if value_type == ValueType.STRING:
            return self._cursor.string(field)
        if value_type == ValueType.ARRAY:
            return self._array(field, depth=1)
        number: bool | int | float = self._numbers(_NUMBERS[value_type], 1, field)[0].item()
        return number

    def _array(self, field: str, depth: int) -> MetadataValue:
        """An array: numbers copied, strings read when they are asked for, arrays in a tuple."""
        cursor = self._cursor
        element_type = self._value_type(f"element type of {field}")
        count = cursor.u64(f"number of elements of {field}")
        if element_type == ValueType.STRING:
            return self._strings(count, field)
        if element_type == ValueType.ARRAY:
            if depth == MAX_ARRAY_DEPTH:
                raise cursor.error(field, "an array nested deeper", f"at most {MAX_ARRAY_DEPTH} levels are allowed")
            allowed = MAX_NESTED_ARRAYS - self._nested_arrays
            cursor.check_count(f"number of elements of {field}", count, _MIN_ARRAY_BYTES, allowed)
            self._nested_arrays += count
            return tuple(self._array(f"{field}[{index}]", depth + 1) for index in range(count))
        dtype = _NUMBERS[element_type]
        cursor.check_count(f"number of elements of {field}", count, dtype.itemsize)
        return self._numbers(dtype, count, field)

    def _numbers(self, dtype: np.dtype[Any], count: int, field: str) -> npt.NDArray[Any]:
        """``count`` numbers, copied: in the file they lie at any offset, unaligned."""
        start = self._cursor.skip(count * dtype.itemsize, field)
        stored = np.frombuffer(self._cursor.data, "u1" if dtype == np.bool_ else dtype, count, start)
        if dtype == np.bool_ and count and stored.max() > 1:
            raise self._cursor.error(field, f"the byte {stored.max()}", "a boolean must be 0 or 1")
        values = stored.astype(dtype)
        values.flags.writeable = False
        return values

    def _strings(self, count: int, field: str) -> StringArray:
        """An array of strings: only where each begins is read."""
        cursor = self._cursor
        cursor.check_count(f"number of elements of {field}", count, _LENGTH.size)
        data, size, position, unpack = cursor.data, cursor.size, cursor.position, _LENGTH.unpack_from
        starts = np.empty(count + 1, np.int64)
        view = starts.data  # assigning to a memoryview is faster than to an array
        # The one loop that runs once per token of a vocabulary: no calls but unpack, no objects but integers.
        for index in range(count):
            view[index] = position
            position += 8
            if position > size:
                break
            position += unpack(data, position - 8)[0]
            if position > size:
                break
        if position > size:
            raise cursor.error(
                f"element {index} of {field}",
                f"{position - view[index]} bytes long at offset {view[index]}",
                f"the file ends after {size} bytes",
                "The file is truncated or damaged: download it again.",
            )
        view[count] = position
        cursor.position = position
        return StringArray(cursor, field, starts)
