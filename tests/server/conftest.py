"""One loaded model, and one server over it, for all tests of the server that need no other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cutaway import LLM
from support.http_server import RunningServer, running


@pytest.fixture(scope="session")
def llm(smollm2_path: Path) -> Iterator[LLM]:
    """SmolLM2 with one thread, since the tests themselves run two at a time, and 1,024 positions."""
    with LLM(smollm2_path, threads=1, max_model_len=1024) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def server(llm: LLM) -> Iterator[RunningServer]:
    """A server that anybody may use, as "smollm2"."""
    with running(llm, served_names=("smollm2", "another-name")) as started:
        yield started
