"""Sampling runs in the floating-point environment that the engine sets around a step."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from cutaway.ops.cpu.threads import float_environment

# The first example of a test compiles what it calls: no deadline.
settings.register_profile("compiling", deadline=None)
settings.load_profile("compiling")


@pytest.fixture(autouse=True)
def _float_environment() -> Iterator[None]:
    with float_environment():
        yield
