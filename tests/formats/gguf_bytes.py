"""Builds GGUF files byte by byte, right or wrong, with nothing checked."""

import struct
from collections.abc import Sequence

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def string(text: bytes, length: int | None = None) -> bytes:
    """A string, or one that lies about its length."""
    return u64(len(text) if length is None else length) + text


def entry(key: bytes, value_type: int, value: bytes) -> bytes:
    """A metadata entry with an encoded value."""
    return string(key) + u32(value_type) + value


def array(element_type: int, count: int, elements: bytes = b"") -> bytes:
    """An array value: what it claims and what follows."""
    return u32(element_type) + u64(count) + elements


def tensor(name: bytes, ne: Sequence[int], tensor_type: int = 0, offset: int = 0, n_dims: int | None = None) -> bytes:
    """An entry of the tensor table, dimensions in the file's order (``ne``)."""
    dims = b"".join(map(u64, ne))
    return string(name) + u32(len(ne) if n_dims is None else n_dims) + dims + u32(tensor_type) + u64(offset)


def gguf(
    entries: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_tensors: int | None = None,
    n_entries: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A whole file."""
    head = magic + u32(version)
    head += u64(len(tensors) if n_tensors is None else n_tensors)
    head += u64(len(entries) if n_entries is None else n_entries)
    head += b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data
