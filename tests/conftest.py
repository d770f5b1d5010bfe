"""What the tests of several folders share: the one real model of the default suite, and a machine's invented limits."""

import dataclasses
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from cutaway.audit.limits import MachineLimits, Rate
from cutaway.hub import resolve

# A shell starts what runs in the background deaf to Ctrl-C, and our child processes would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says nothing here: the machine may be busy, and kernels compile when they are first used.
settings.register_profile("cutaway", deadline=None)
settings.load_profile("cutaway")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct as a user gets it: from the cache, else fetched (93 MB)."""
    return resolve("smollm2").path


@pytest.fixture
def limits() -> MachineLimits:
    """10 GB/s, 100 Gop/s int8, 20 Gop/s float32 at best."""
    rates = (Rate(rate, rate / 2, rate / 4, 5) for rate in (10e9, 100e9, 20e9))
    return MachineLimits(2, "avx2", 1 << 20, 1 << 19, 0.1, *rates)


@pytest.fixture
def amx_limits(limits: MachineLimits) -> MachineLimits:
    """The same, and 400 Gop/s with AMX at best."""
    return dataclasses.replace(limits, lowering="amx", amx=Rate(400e9, 200e9, 100e9, 5))
