"""Sampling runs in the floating-point environment that the engine sets around a step."""

from collections.abc import Iterator

import pytest

from cutaway.ops.cpu.threads import float_environment


@pytest.fixture(autouse=True)
def _float_environment() -> Iterator[None]:
    with float_environment():
        yield
