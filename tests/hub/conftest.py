"""The hub's tests run with a cache of their own and without this machine's settings for pip and proxies."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from package_index import PackageIndex


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of this test; it doesn't exist yet."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_", "CUTAWAY_", "XDG_")) or name.lower().endswith(("_proxy", "_offline")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "600")  # a stalled pip must not leave of itself
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """A running index; both ways to download use it."""
    with PackageIndex() as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.url)
        yield running


@pytest.fixture
def deaf_index(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An index address where every connection is refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{taken.getsockname()[1]}/simple")
        yield


@pytest.fixture
def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `import pip` fail, as in an environment that has none."""
    monkeypatch.setitem(sys.modules, "pip", None)


@pytest.fixture(params=["pip", "index"])
def way(request: pytest.FixtureRequest) -> str:
    """Both ways to download a wheel."""
    if request.param == "index":
        request.getfixturevalue("no_pip")
    return str(request.param)
