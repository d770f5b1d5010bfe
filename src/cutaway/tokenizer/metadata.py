"""Reading a model file's metadata: each value has the kind that its key wants, or one clear error.

In: GGUF metadata and a key. Out: the value, as Python's or NumPy's type; None where the key is absent and may be.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from cutaway.errors import ModelFileError

CONVERT_AGAIN = "Convert the model again, or use another file of it."

T = TypeVar("T", bool, int, str)

_NAMES: Mapping[type, str] = {bool: "true or false", int: "an integer", str: "text"}
_SHOWN = 80  # characters of a value in a message


def read_scalar(metadata: Mapping[str, Any], key: str, kind: type[T]) -> T | None:
    """A value of exactly this kind; a NumPy scalar counts as Python's.

    Raises:
        ModelFileError: the value is of another kind.
    """
    value = metadata.get(key)
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or type(value) is kind:
        return value
    raise _wrong_kind(key, value, _NAMES[kind])


def each_string(metadata: Mapping[str, Any], key: str) -> Iterator[str]:
    """The strings of an array, one after the other; those of a GGUF file are decoded as they are asked for.

    Raises:
        ModelFileError: the key is missing or its value is no array of strings.
    """
    value = metadata.get(key)
    if value is None:
        raise ModelFileError(f"{key} is missing from the model file; the tokenizer needs it. {CONVERT_AGAIN}")
    plain = isinstance(value, (list, tuple))
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise _wrong_kind(key, value, "an array of strings")
    if plain and not all(isinstance(string, str) for string in value):
        raise _wrong_kind(key, value, "an array of strings")
    yield from value


def read_strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    """The strings of an array as a list; errors are those of ``each_string``."""
    return list(each_string(metadata, key))


def read_integers(metadata: Mapping[str, Any], key: str) -> npt.NDArray[np.int64] | None:
    """An array of integers, ``[n] int64``.

    Raises:
        ModelFileError: the value is no array of integers.
    """
    value = metadata.get(key)
    if value is None:
        return None
    integers = isinstance(value, (list, tuple)) and all(type(item) is int for item in value)
    if integers or (isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu"):
        try:
            return np.asarray(value, np.int64)
        except OverflowError:
            pass
    raise _wrong_kind(key, value, "an array of integers")


def read_floats(metadata: Mapping[str, Any], key: str) -> npt.NDArray[np.float64]:
    """An array of numbers, ``[n] float64``.

    Raises:
        ModelFileError: the key is missing or its value is no array of numbers.
    """
    value = metadata.get(key)
    if value is None:
        raise ModelFileError(f"{key} is missing from the model file; the tokenizer needs it. {CONVERT_AGAIN}")
    numbers = isinstance(value, (list, tuple)) and all(type(item) in (int, float) for item in value)
    if numbers or (isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iuf"):
        try:
            return np.asarray(value, np.float64)
        except OverflowError:
            pass
    raise _wrong_kind(key, value, "an array of numbers")


def _wrong_kind(key: str, value: object, wanted: str) -> ModelFileError:
    value = value.item() if isinstance(value, np.generic) else value
    shown = ascii(value) if isinstance(value, (str, int, float)) else f"of {_length(value)} elements"
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    return ModelFileError(f"{key} is {type(value).__name__} {shown}; it must be {wanted}. {CONVERT_AGAIN}")


def _length(value: object) -> int:
    return value.size if isinstance(value, np.ndarray) else len(value) if hasattr(value, "__len__") else 1
