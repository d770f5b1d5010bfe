"""What the tests of every folder share: the one real model of the default suite."""

from pathlib import Path

import pytest

from cutaway.hub import resolve


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct as a user gets it: from the cache, else fetched (93 MB)."""
    return resolve("smollm2").path
