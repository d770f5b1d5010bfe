"""A runner of the real model, for the tests of the ledger."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cutaway.engine.runner import ModelRunner
from cutaway.formats.gguf import open_gguf


@pytest.fixture(scope="session")
def runner(smollm2_path: Path) -> Iterator[ModelRunner]:
    with (
        open_gguf(smollm2_path) as gguf,
        ModelRunner(gguf, threads=2, context=64, max_tokens=16, max_outputs=4) as loaded,
    ):
        yield loaded


@pytest.fixture(scope="session")
def weight_bytes(smollm2_path: Path) -> dict[str, int]:
    with open_gguf(smollm2_path) as gguf:
        return {name: tensor.nbytes for name, tensor in gguf.tensors.items()}
