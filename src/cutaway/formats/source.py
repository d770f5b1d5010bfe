"""A model source: what an engine reads a model from, whatever files it has.

Metadata and tensors bear GGUF's names; the readers of other formats translate. In: what a reader found. Out: metadata
values of the types that the caller wants, and tensors by name.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TypeVar

from cutaway.errors import ModelFileError
from cutaway.formats.cursor import shown
from cutaway.formats.gguf_metadata import MetadataValue
from cutaway.formats.tensor import Tensor

T = TypeVar("T")
D = TypeVar("D")
S = TypeVar("S", bound="ModelSource")


class ModelSource:
    """An open model. Its files must not be shortened while it is open."""

    def __init__(
        self,
        path: Path,
        format: str,
        metadata: Mapping[str, MetadataValue],
        tensors: Mapping[str, Tensor],
        origins: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """path: the file or folder, as messages name it. format: the name of its format. origins: for names of metadata
        and tensors that were translated, what the files call them.
        """
        self.path = path
        self.format = format
        self._metadata: Mapping[str, MetadataValue] | None = MappingProxyType(dict(metadata))
        self._tensors: Mapping[str, Tensor] | None = MappingProxyType(dict(tensors))
        self._origins = origins

    @property
    def metadata(self) -> Mapping[str, MetadataValue]:
        """What the files say of the model, by GGUF's keys. ValueError once it is closed."""
        if self._metadata is None:
            raise ValueError(f"{self.path} is closed")
        return self._metadata

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The tensors by GGUF's names. ValueError once it is closed."""
        if self._tensors is None:
            raise ValueError(f"{self.path} is closed")
        return self._tensors

    def named(self, name: str) -> str:
        """The name of a tensor or of metadata, with what the files call it where that is something else."""
        return f"{name} ({self._origins[name]})" if name in self._origins else name

    def require(self, key: str, kind: type[T]) -> T:
        """The metadata value of ``key``.

        ``kind`` is its exact type: bool, int, float, str, ``np.ndarray``, ``StringArray`` or tuple. Raises
        ``ModelFileError`` when the key is missing or its value is of another type.
        """
        field, remedy = f"metadata {shown(key)}", "Convert the model again, or use another file of it."
        if key in self._origins:
            field += f" ({self._origins[key]})"
        if key not in self.metadata:
            raise ModelFileError(f"{self.path}: {field} is missing; the model can't be loaded without it. {remedy}")
        value: object = self.metadata[key]
        if isinstance(value, kind) and type(value) is kind:
            return value
        raise ModelFileError(
            f"{self.path}: {field} has the type {type(value).__name__}; it must be {kind.__name__}. {remedy}"
        )

    def get(self, key: str, kind: type[T], default: D) -> T | D:
        """As ``require``, but ``default`` when the key is missing: for values whose absence has a meaning."""
        return self.require(key, kind) if key in self.metadata else default

    def drop_pages(self, tensor: Tensor) -> None:
        """Give the memory that caches ``tensor``'s bytes back; touching them again reads the file again."""
        if self._tensors is None:
            raise ValueError(f"{self.path} is closed")
        tensor.drop_pages()

    def close(self) -> None:
        """Let go of the files. They are unmapped once no tensor's data and no string array is in use any more."""
        self._metadata = None
        self._tensors = None

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
