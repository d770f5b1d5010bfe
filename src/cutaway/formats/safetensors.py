"""safetensors: a file of named tensors behind a header in JSON, mapped into memory.

In: a path. Out: tensors that are read-only views of the file's bytes. Layout: the header's length as uint64, the header
(name → type, shape and the range of its bytes), the bytes of all tensors without gaps. Refused is what the reference
implementation refuses (safetensors, ``src/tensor.rs``), and besides what the format's description forbids.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from cutaway.formats.blocks import BY_NAME, BlockType
from cutaway.formats.cursor import Cursor, shown
from cutaway.formats.foreign import describe_foreign
from cutaway.formats.mapping import map_file
from cutaway.formats.tensor import Tensor

MAX_HEADER_BYTES: Final = 100_000_000  # the reference's limit
MAX_DIMS: Final = 8
MAX_ELEMENTS: Final = 1 << 56  # NumPy's sizes don't wrap below it
# No real file comes near these; they bound the objects that a hostile header can make us create.
MAX_TENSORS: Final = 65_536
MAX_METADATA: Final = 65_536
MAX_ENTRY_CHARACTERS: Final = 1_000
MAX_STRING_BYTES: Final = 1 << 20

METADATA_KEY: Final = "__metadata__"

DTYPES: Final[Mapping[str, BlockType]] = MappingProxyType(
    {name: BY_NAME[name] for name in ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8")}
    # GGML has no numbers for these: they can be located, not read.
    | {
        name: BlockType(name, -1, 1, size)
        for name, size in (
            *(("BOOL", 1), ("U8", 1), ("U16", 2), ("U32", 4), ("U64", 8), ("C64", 8)),
            *((f"F8_{kind}", 1) for kind in ("E4M3", "E5M2", "E8M0", "E4M3FNUZ", "E5M2FNUZ")),
        )
    }
)
"""The types of elements that are whole bytes."""

_SPACE = re.compile(r"[ \t\r\n]*")
_ENTRY = re.compile(rf"\{{[^{{}}]{{0,{MAX_ENTRY_CHARACTERS}}}\}}")


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the header says of a tensor; begin and end count from the first byte behind the header."""

    name: str
    dtype: BlockType
    shape: tuple[int, ...]
    begin: int
    end: int


def open_safetensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of the file, in the order of their bytes.

    Raises ``ModelFileError`` when the file can't be opened or breaks the format. Time and memory grow with the header.
    """
    path = Path(path)
    cursor = Cursor(path, map_file(path, "safetensors", _look))
    length = cursor.u64("length of the header")
    if length > MAX_HEADER_BYTES:
        raise cursor.error("length of the header", str(length), f"at most {MAX_HEADER_BYTES} bytes are allowed")
    start = cursor.skip(length, "header")
    entries = list(_inside(cursor, _Header(cursor, start, cursor.position).entries()))
    entries.sort(key=lambda entry: (entry.begin, entry.end))
    _check_ranges(cursor, entries)
    file, tensors = np.frombuffer(cursor.data, np.uint8), {}
    for entry in entries:
        begin = cursor.position + entry.begin
        row = (entry.shape[-1] if entry.shape else 1) * entry.dtype.bytes_per_block
        data = file[begin : cursor.position + entry.end].reshape(*entry.shape[:-1], row)
        tensors[entry.name] = Tensor(entry.name, entry.shape, entry.dtype, begin, data, cursor.data)
    return tensors


def _look(head: bytes, size: int) -> str | None:
    """What is wrong with a file that begins so. A header longer than the file is for the reader to tell."""
    if size >= 8 and head[8:9] in (b"{", b"") and not head.startswith(b"GGUF"):
        return None
    kind, remedy = ("a GGUF file", "Name it with the ending .gguf.") if head.startswith(b"GGUF") else (None, "")
    if kind is None and size >= 8 and int.from_bytes(head[:8], "little") <= MAX_HEADER_BYTES:
        return (
            f"header begins with {shown(head[8:16])}; it must begin with '{{'. The file is damaged: download it again."
        )
    kind, remedy = (kind, remedy) if kind else describe_foreign(head, size)
    return f"is not a safetensors file but seems to be {kind}. {remedy}"


def _inside(cursor: Cursor, entries: Iterator[_Entry]) -> Iterator[_Entry]:
    """The entries, while there is room for their bytes: many that share some are refused before all are read."""
    behind, together = cursor.remaining, 0
    for entry in entries:
        together += entry.end - entry.begin
        limit, remedy = None, None
        if entry.begin > entry.end:
            limit = "the end must not lie before the begin"
        elif entry.end > behind:
            limit = f"the file ends {behind} bytes behind the header"
            remedy = "The file is truncated or damaged: download it again."
        elif together > behind:
            limit = f"with those before it, {together} bytes of {behind} are taken, and tensors must share no bytes"
        if limit is not None:
            field = f"data_offsets of tensor {shown(entry.name)}"
            raise cursor.error(field, f"[{entry.begin}, {entry.end}]", limit, remedy)
        yield entry


def _check_ranges(cursor: Cursor, entries: list[_Entry]) -> None:
    """The tensors' bytes follow one another, from the end of the header to the end of the file."""
    position, previous = 0, "the header"
    for entry in entries:
        field = f"data_offsets of tensor {shown(entry.name)}"
        if entry.begin != position:
            limit = f"{previous} ends at {position}, and tensors must follow without gaps and share no bytes"
            raise cursor.error(field, f"[{entry.begin}, {entry.end}]", limit)
        if prod(size for size in entry.shape if size) >= MAX_ELEMENTS:
            limit = f"at most {MAX_ELEMENTS} elements are allowed, empty dimensions left out"
            raise cursor.error(f"shape of tensor {shown(entry.name)}", shown(str(list(entry.shape))), limit)
        expected = prod(entry.shape) * entry.dtype.bytes_per_block
        if entry.end - entry.begin != expected:
            limit = f"{list(entry.shape)} of {entry.dtype.name} are {expected} bytes"
            raise cursor.error(field, f"[{entry.begin}, {entry.end}]", limit)
        position, previous = entry.end, f"tensor {shown(entry.name)}"
    if position != cursor.remaining:
        rest = cursor.remaining - position
        raise cursor.error("size of the file", str(cursor.size), f"the tensors end {rest} bytes before")


class _Header:
    """Reads the header, which is JSON of one known form, and so never makes more objects than it has tensors."""

    def __init__(self, cursor: Cursor, start: int, end: int) -> None:
        self._cursor = cursor
        try:
            with memoryview(cursor.data) as whole:
                # A character of its own for each byte: decoded at once, one wide character would make all of them wide.
                self._text = str(whole[start:end], "latin-1")
        except UnicodeDecodeError as error:
            raise cursor.error("header", shown(cursor.data[start : start + 8]), str(error.reason)) from None
        self._at = 0

    def entries(self) -> Iterator[_Entry]:
        """The tensors in the order of the header; the file's own metadata, strings that nobody reads, are checked."""
        names: set[str] = set()
        for name in self._object("header"):
            if name in names:
                raise self._error(f"name {shown(name)} in the header", "a duplicate", "names must be unique")
            names.add(name)
            if len(names) > MAX_TENSORS:
                raise self._error("number of tensors", f"over {MAX_TENSORS}", f"at most {MAX_TENSORS} are allowed")
            if name == METADATA_KEY:
                self._strings()
            else:
                yield self._entry(name)
        if self._peek():
            raise self._error("header", shown(self._text[self._at :]), "nothing but white space may follow its last }")

    def _error(self, field: str, found: str, limit: str) -> Exception:
        return self._cursor.error(field, found, limit)

    def _peek(self) -> str:
        """The next character that is not white space."""
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._text[self._at : self._at + 1]

    def _take(self, wanted: str, field: str) -> str:
        """The next character, which must be one of those wanted."""
        found = self._peek()
        if not found or found not in wanted:
            shown_found = shown(self._text[self._at : self._at + 16]) if found else "at its end"
            limit = f"at character {self._at} there must be {' or '.join(wanted)}"
            raise self._error(field, shown_found, limit)
        self._at += 1
        return found

    def _string(self, field: str) -> str:
        """A string in quotation marks."""
        self._take('"', field)
        start = self._at - 1
        end = _end_of_string(self._text, start)
        if end < 0:
            limit = f"it must be a JSON string of at most {MAX_STRING_BYTES} bytes"
            raise self._error(field, shown(self._text[start : start + 80]), limit)
        self._at = end
        raw = self._text[start:end].encode("latin-1")
        try:
            text = str(json.loads(raw.decode("utf-8")))
            text.encode()  # not half of a surrogate pair
        except UnicodeDecodeError as error:
            limit = f"it must be UTF-8 ({error.reason} at byte {error.start})"
            raise self._error(field, shown(raw[error.start : error.start + 8]), limit) from None
        except ValueError:
            raise self._error(field, shown(raw[:80]), "it must be a JSON string") from None
        return text

    def _object(self, field: str) -> Iterator[str]:
        """The keys of an object; the caller takes each one's value before the next."""
        self._take("{", field)
        if self._peek() == "}":
            self._at += 1
            return
        while True:
            key = self._string(f"a name in the {field}")
            self._take(":", field)
            yield key
            if self._take(",}", field) == "}":
                return

    def _strings(self) -> None:
        keys: set[str] = set()
        for key in self._object(METADATA_KEY):
            if key in keys:
                raise self._error(f"{shown(key)} in {METADATA_KEY}", "a duplicate", "names must be unique")
            keys.add(key)
            if len(keys) > MAX_METADATA:
                raise self._error(METADATA_KEY, f"over {MAX_METADATA} entries", f"at most {MAX_METADATA} are allowed")
            self._string(f"{shown(key)} in {METADATA_KEY}")

    def _entry(self, name: str) -> _Entry:
        """One entry of the header, checked on its own."""
        field = f"tensor {shown(name)} in the header"
        self._peek()
        match = _ENTRY.match(self._text, self._at)
        if match is None:
            limit = f"it must be an object of at most {MAX_ENTRY_CHARACTERS} characters, with no other within"
            raise self._error(field, shown(self._text[self._at : self._at + 80]), limit)
        self._at = match.end()
        try:
            pairs: list[tuple[str, Any]] = json.loads(
                match[0], object_pairs_hook=list, parse_int=_unsigned, parse_constant=_unsigned
            )
        except (ValueError, RecursionError):
            raise self._error(field, shown(match[0]), "it must be JSON") from None
        values = dict(pairs)
        if len(values) != len(pairs):
            raise self._error(field, shown(match[0]), "its names must be unique")
        if missing := [key for key in ("dtype", "shape", "data_offsets") if key not in values]:
            raise self._error(field, f"without {', '.join(missing)}", "a tensor needs dtype, shape and data_offsets")
        dtype, shape, offsets = values["dtype"], values["shape"], values["data_offsets"]
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise self._error(f"dtype of {field}", shown(str(dtype)), f"known are {', '.join(DTYPES)}")
        if not _is_sizes(shape) or len(shape) > MAX_DIMS:
            raise self._error(f"shape of {field}", shown(str(shape)), f"it must be up to {MAX_DIMS} sizes")
        if not _is_sizes(offsets) or len(offsets) != 2:
            raise self._error(f"data_offsets of {field}", shown(str(offsets)), "it must be begin and end")
        return _Entry(name, DTYPES[dtype], tuple(shape), offsets[0], offsets[1])


def _end_of_string(text: str, start: int) -> int:
    """Behind the quotation mark that ends the string which begins at ``start``; -1 if it is too long, or has no end."""
    quote = start
    while (quote := text.find('"', quote + 1, start + MAX_STRING_BYTES)) > 0:
        before = quote
        while text[before - 1] == "\\":
            before -= 1
        if (quote - before) % 2 == 0:
            return quote + 1
    return -1


def _is_sizes(value: object) -> bool:
    """A list of integers that an unsigned 64-bit number holds."""
    return isinstance(value, list) and all(type(each) is int and 0 <= each < 1 << 64 for each in value)


def _unsigned(digits: str) -> int:
    """The number; a sign, even before 0, and NaN are refused."""
    if not digits.isdigit():
        raise ValueError(f"{digits} is no size")
    return int(digits)
