"""SmolLM2 in memory, and its dequantised twin, once a session."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutaway.formats.gguf import GGUFFile, open_gguf
from cutaway.model.config import ModelConfig
from cutaway.model.loader import LoadedModel, load_model
from cutaway.model.records import Model
from cutaway.model.reference import load_reference

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(scope="session")
def smollm2_gguf(smollm2_path: Path) -> Iterator[GGUFFile]:
    with open_gguf(smollm2_path) as gguf:
        yield gguf


@pytest.fixture(scope="session")
def smollm2(smollm2_gguf: GGUFFile) -> LoadedModel:
    return load_model(smollm2_gguf, threads=2)


@pytest.fixture(scope="session")
def smollm2_reference(smollm2_gguf: GGUFFile) -> tuple[ModelConfig, Model]:
    return load_reference(smollm2_gguf)


@pytest.fixture(scope="session")
def prompts() -> dict[str, list[int]]:
    """The ids of the fixtures' prompts."""
    listed = json.loads((FIXTURES / "prompts.json").read_text())["prompts"]
    return {prompt["name"]: prompt["ids"] for prompt in listed}
