"""One loaded model for all tests of the engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cutaway import LLM


@pytest.fixture(scope="session")
def llm(smollm2_path: Path) -> Iterator[LLM]:
    """SmolLM2 with two threads and 1,024 positions."""
    with LLM(smollm2_path, threads=2, max_model_len=1024) as loaded:
        yield loaded
