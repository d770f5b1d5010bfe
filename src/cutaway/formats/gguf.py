"""GGUF: a file of metadata and named tensors, mapped into memory.

In: a path. Out: a ``GGUFFile`` whose tensors are read-only views of the file's bytes in their block formats.
Whatever the file claims is checked against its size before anything is allocated. Source: the GGUF
specification (ggml, ``docs/gguf.md``), versions 2 and 3, little-endian.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.formats.blocks import BLOCK_TYPES, BlockType
from cutaway.formats.cursor import Cursor, shown
from cutaway.formats.foreign import describe_foreign
from cutaway.formats.gguf_metadata import ALIGNMENT_KEY, MetadataReader, MetadataValue
from cutaway.formats.mapping import map_file
from cutaway.formats.source import ModelSource
from cutaway.formats.tensor import Tensor

__all__ = ["GGUFFile", "Tensor", "open_gguf"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)  # the same layout; version 3 added big-endian files
DEFAULT_ALIGNMENT = 32
MIN_ALIGNMENT = 8  # the specification's limit
MAX_ALIGNMENT = 1 << 21  # a huge page
MAX_DIMS = 4
MAX_NAME_BYTES = 65_535
MAX_TENSORS = 65_536  # no real file comes near it; bounds the objects that a hostile file can make us create

_MIN_TENSOR_INFO_BYTES = 8 + 1 + 4 + 8 + 4 + 8  # length of the name, name, n_dims, one dimension, type, offset


class GGUFFile(ModelSource):
    """An open GGUF file; ``open_gguf`` makes it."""

    def __init__(
        self,
        path: Path,
        version: int,
        alignment: int,
        metadata: Mapping[str, MetadataValue],
        tensors: Mapping[str, Tensor],
    ) -> None:
        super().__init__(path, f"GGUF version {version}", metadata, tensors)
        self.version = version
        self.alignment = alignment


def open_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """Map the file at ``path`` and read its metadata and tensor table.

    Raises ``ModelFileError`` when the file can't be opened, isn't a GGUF file, or breaks the specification.
    Time grows with the size of the metadata, not of the tensors; memory is bounded by the file's size.
    """
    path = Path(path)
    cursor = Cursor(path, map_file(path, "GGUF", _look))
    cursor.skip(len(MAGIC), "magic")
    version = _read_version(cursor)
    n_tensors = cursor.u64("number of tensors")
    n_entries = cursor.u64("number of metadata entries")
    metadata = MetadataReader(cursor).entries(n_entries)
    alignment = _alignment(cursor, metadata)
    tensors = _read_tensors(cursor, n_tensors, alignment)
    return GGUFFile(path, version, alignment, metadata, tensors)


def _look(head: bytes, size: int) -> str | None:
    """What is wrong with a file that begins so."""
    if head.startswith(MAGIC):
        return None
    kind, remedy = describe_foreign(head, size)
    return f"is not a GGUF file but seems to be {kind}. {remedy}"


def _read_version(cursor: Cursor) -> int:
    """The version in the head. One whose bytes are swapped tells of a big-endian file."""
    version = cursor.u32("version")
    if version in VERSIONS:
        return version
    if version & 0xFFFF == 0 and version != 0:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        raise cursor.error(
            "byte order",
            f"big-endian (version {swapped})",
            "only little-endian is supported",
            "Convert it again.",
        )
    raise cursor.error(
        "version",
        str(version),
        f"supported are {VERSIONS[0]} and {VERSIONS[1]}",
        "Convert the model again with a current converter." if version == 1 else None,
    )


def _alignment(cursor: Cursor, metadata: Mapping[str, Any]) -> int:
    alignment: int = metadata.get(ALIGNMENT_KEY, DEFAULT_ALIGNMENT)  # the specification's default
    if not MIN_ALIGNMENT <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise cursor.error(
            f"metadata '{ALIGNMENT_KEY}'",
            str(alignment),
            f"it must be a power of two from {MIN_ALIGNMENT} to {MAX_ALIGNMENT}",
        )
    return alignment


@dataclass(frozen=True, slots=True)
class _TensorInfo:
    """An entry of the tensor table; ``offset`` counts from the start of the data section."""

    name: str
    shape: tuple[int, ...]
    block_type: BlockType
    offset: int

    @property
    def bytes_per_row(self) -> int:
        return self.shape[-1] // self.block_type.block_size * self.block_type.bytes_per_block

    @property
    def nbytes(self) -> int:
        return prod(self.shape[:-1]) * self.bytes_per_row


def _read_tensors(cursor: Cursor, count: int, alignment: int) -> dict[str, Tensor]:
    """All tensors by name, each a view of its bytes; ModelFileError where two overlap or one ends behind the file."""
    cursor.check_count("number of tensors", count, _MIN_TENSOR_INFO_BYTES, MAX_TENSORS)
    infos: dict[str, _TensorInfo] = {}
    for number in range(count):
        info = _read_tensor_info(cursor, number, alignment)
        if info.name in infos:
            raise cursor.error(f"name {shown(info.name)} of tensor {number}", "a duplicate", "names must be unique")
        infos[info.name] = info
    data_start = -(-cursor.position // alignment) * alignment
    _check_extents(cursor, infos.values(), data_start)
    file = np.frombuffer(cursor.data, np.uint8)
    tensors = {}
    for info in infos.values():
        start = data_start + info.offset
        data = file[start : start + info.nbytes].reshape(*info.shape[:-1], info.bytes_per_row)
        tensors[info.name] = Tensor(info.name, info.shape, info.block_type, start, data, cursor.data)
    return tensors


def _read_tensor_info(cursor: Cursor, number: int, alignment: int) -> _TensorInfo:
    """One entry of the table of tensors, checked but for whether its bytes are in the file."""
    name = cursor.name(f"name of tensor {number}", MAX_NAME_BYTES)
    field = f"tensor {shown(name)}"
    n_dims = cursor.u32(f"number of dimensions of {field}")
    if not 1 <= n_dims <= MAX_DIMS:
        raise cursor.error(f"number of dimensions of {field}", str(n_dims), f"allowed are 1 to {MAX_DIMS}")
    ne = [cursor.u64(f"dimension {axis} of {field}") for axis in range(n_dims)]
    if 0 in ne:
        raise cursor.error(f"dimension {ne.index(0)} of {field}", "0", "every dimension must be at least 1")
    type_number = cursor.u32(f"type of {field}")
    if type_number not in BLOCK_TYPES:
        raise cursor.error(
            f"type of {field}",
            str(type_number),
            f"known are {', '.join(map(str, BLOCK_TYPES))}",
            "The format is withdrawn or newer than this reader, or the file is damaged: use another file.",
        )
    block_type = BLOCK_TYPES[type_number]
    if ne[0] % block_type.block_size:
        raise cursor.error(
            f"row length of {field}",
            f"{ne[0]} elements",
            f"blocks of {block_type.name} need a multiple of {block_type.block_size}",
            "Quantize the model again with a format that fits its rows.",
        )
    offset = cursor.u64(f"offset of {field}")
    if offset % alignment:
        raise cursor.error(f"offset of {field}", str(offset), f"it must be a multiple of {alignment}")
    return _TensorInfo(name, tuple(reversed(ne)), block_type, offset)


def _check_extents(cursor: Cursor, infos: Iterable[_TensorInfo], data_start: int) -> None:
    """Every tensor lies inside the file, and no two share a byte."""
    previous, previous_end = "", 0
    for info in sorted(infos, key=lambda info: info.offset):
        field = f"data of tensor {shown(info.name)}"
        end = info.offset + info.nbytes
        if data_start + end > cursor.size:
            raise cursor.error(
                field,
                f"{info.nbytes} bytes long at offset {data_start + info.offset}",
                f"the file ends after {cursor.size} bytes",
                "The file is truncated or damaged: download it again.",
            )
        if info.offset < previous_end:
            raise cursor.error(
                field,
                f"at offset {data_start + info.offset}",
                f"tensor {shown(previous)} occupies the bytes up to {data_start + previous_end}",
            )
        previous, previous_end = info.name, end
