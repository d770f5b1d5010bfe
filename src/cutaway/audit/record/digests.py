"""The digests by which a record names a model: of its tensors, of its other metadata, of its tokenizer.

In: a model's files. Out: SHA-256 in hex. To read all tensors takes a while, so what was found is kept in the cache
folder for files of the same place, size, times and inode; who verifies reads them anew.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cutaway.errors import ModelFileError
from cutaway.formats.gguf_metadata import StringArray
from cutaway.formats.open_model import open_model
from cutaway.formats.source import ModelSource
from cutaway.formats.tensor import Tensor
from cutaway.hub.paths import cache_root
from cutaway.hub.split_name import split_name
from cutaway.hub.whole_file import write_whole

Told = Callable[[int, int], object]
"""Is told of the bytes that were read, and of how many there are."""

VERSION: Final = 3
"""Of how digests are made: those that were kept by another are not taken."""
TEMPLATE_KEY: Final = "tokenizer.chat_template"
TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
)
PIECE: Final = 1 << 24  # bytes that are hashed between two words on how far it is


@dataclass(frozen=True)
class ModelDigests:
    """What decides on an answer beside the request and the engine."""

    tensors: str  # of the manifest: a line for each tensor, by name, with its shape, its type and its bytes' SHA-256
    metadata: str  # of all that the files say beside: sizes, constants, names
    tokenizer: str  # of the vocabulary and its rules, without the template


def model_digests(path: Path, told: Told | None = None, *, fresh: bool = False) -> ModelDigests:
    """Of the model at a path that ``open_model`` takes. fresh: don't trust the cache."""
    kept = cache_root() / "digests" / f"{_place(path)}.json"
    if not fresh and (known := _read(kept)) is not None:
        return known
    with open_model(path) as source:
        found = ModelDigests(_tensors(source, told), _metadata(source), _tokenizer(source))
    _keep(kept, found)
    return found


def text_digest(text: str | None) -> str | None:
    """SHA-256 of a text's UTF-8; None for none."""
    return None if text is None else hashlib.sha256(text.encode("utf-8")).hexdigest()


def manifest_line(name: str, tensor: Tensor, told: Callable[[int], object] | None = None) -> str:
    """``["blk.0.attn_k.weight",[192,576],"Q4_K","…"]``: the bytes are those that the file has."""
    digest = hashlib.sha256()
    flat = tensor.stored.reshape(-1)
    for start in range(0, flat.size, PIECE):
        piece = flat[start : start + PIECE]
        digest.update(np.ascontiguousarray(piece).data)
        if told is not None:
            told(piece.size)
    return json.dumps([name, list(tensor.shape), tensor.block_type.name, digest.hexdigest()], separators=(",", ":"))


def _tensors(source: ModelSource, told: Told | None) -> str:
    total, done = sum(each.nbytes for each in source.tensors.values()), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if told is not None:
            told(done, total)

    digest = hashlib.sha256()
    for name in sorted(source.tensors):
        tensor = source.tensors[name]
        digest.update(manifest_line(name, tensor, advance).encode("ascii") + b"\n")
        tensor.drop_pages()
    return digest.hexdigest()


def _metadata(source: ModelSource) -> str:
    return _values({key: each for key, each in source.metadata.items() if not key.startswith("tokenizer.")})


def _tokenizer(source: ModelSource) -> str:
    if source.path.is_dir():
        files = [source.path / name for name in TOKENIZER_FILES]
        return _values({each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in files if each.is_file()})
    tokenizer = {key: each for key, each in source.metadata.items() if key.startswith("tokenizer.")}
    return _values({key: each for key, each in tokenizer.items() if key != TEMPLATE_KEY})


def _values(values: Mapping[str, Any]) -> str:
    digest = hashlib.sha256()
    for key in sorted(values):
        digest.update(json.dumps(key).encode("ascii") + b":")
        for piece in value_bytes(values[key]):
            digest.update(piece)
        digest.update(b"\n")
    return digest.hexdigest()


def value_bytes(value: Any) -> Iterable[bytes]:
    """Of a metadata value; no two values have the same, nor is one the beginning of another: each part says what it is
    and how much follows.
    """
    if isinstance(value, StringArray):
        texts = value.raw_list()
        yield b"s" + _count(len(texts))
        for raw in texts:
            yield _count(len(raw)) + raw
    elif isinstance(value, np.ndarray):
        kind = f"{value.dtype.str}{value.shape}".encode("ascii")
        yield b"a" + _count(len(kind)) + kind + np.ascontiguousarray(value).tobytes()
    elif isinstance(value, list | tuple):
        yield b"l" + _count(len(value))
        for each in value:
            yield from value_bytes(each)
    else:
        plain = value.item() if isinstance(value, np.generic) else value
        text = f"{type(plain).__name__} {json.dumps(plain)}".encode("ascii")
        yield b"v" + _count(len(text)) + text


def _count(number: int) -> bytes:
    return number.to_bytes(8, "little")


def _place(path: Path) -> str:
    """A name for these very files."""
    named = split_name(path.name)
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if each.is_file())
    elif named is not None and named.count > 1:
        files = [path.with_name(named.part(number)) for number in range(1, named.count + 1)]
    else:
        files = [path]
    try:
        facts = [(str(each.resolve()), *_stat(each.stat())) for each in files]
    except OSError as error:
        raise ModelFileError(f"{path} can't be read ({error.strerror}). Check the path.") from None
    return hashlib.sha256(json.dumps([VERSION, facts]).encode("ascii")).hexdigest()[:32]


def _stat(found: os.stat_result) -> tuple[int, int, int, int]:
    """The time of the inode's change, too: nobody can set it back, as rsync and cp do with that of writing."""
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _read(kept: Path) -> ModelDigests | None:
    try:
        return ModelDigests(**json.loads(kept.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _keep(kept: Path, found: ModelDigests) -> None:
    """A cache that can't be written is no error."""
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_whole(kept, json.dumps(asdict(found)).encode())
    except OSError:
        return
