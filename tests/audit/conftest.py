"""A runner of the real model, and invented limits, for the tests of the ledger."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cutaway.audit.limits import MachineLimits, Rate
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


@pytest.fixture
def limits() -> MachineLimits:
    """10 GB/s, 100 Gop/s int8, 20 Gop/s float32 at best."""
    rates = (Rate(rate, rate / 2, rate / 4, 5) for rate in (10e9, 100e9, 20e9))
    return MachineLimits(2, "avx2", 1 << 20, 1 << 19, 0.1, *rates)
