"""A server that is killed amid its work, by a signal that nobody can hear, and started again on the same port: it
serves as before, with the same cache of models and of compiled kernels.
"""

import http.client
import json
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from support.http_server import until
from support.long import LONG
from support.patience import SECONDS, finishes
from support.processes import line_with, process

LOAD = {"prompt": "The sea is", "max_tokens": 200, "ignore_eos": True, "stream": True}


def post(port: int, body: object) -> http.client.HTTPResponse:
    """The beginning of the reply to a completion."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return connection.getresponse()


def begin(started: "subprocess.Popen[str]") -> int:
    """The port of a server that has loaded its model."""
    return int(finishes(lambda: line_with(started, " serves ")).split()[2].rpartition(":")[2])


@pytest.fixture(params=["warm", "cold"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The variables of a server with the kernels of other tests, or with none."""
    if request.param == "warm":
        return {}
    if not LONG:
        pytest.skip("compiles all kernels: CUTAWAY_LONG_TESTS=1 pytest tests/server/test_killed.py")
    return {"CUTAWAY_CACHE": str(tmp_path)}


def test_killed_and_started_again(smollm2_path: Path, cache: dict[str, str]) -> None:
    """Twice: while it answers, and while it loads; there its kernels may be half written."""
    options = (str(smollm2_path), "--threads", "1", "--max-model-len", "256")
    ask = {"prompt": "The sea is", "max_tokens": 5, "temperature": 0, "return_token_ids": True}
    with process(*options, "--port", "0") as first:
        port = begin(first)
        want = json.load(post(port, ask))["choices"]
        streams = [post(port, LOAD) for _ in range(4)]
        for stream in streams:
            assert stream.readline().startswith(b"data: ")
        first.send_signal(signal.SIGKILL)
        assert finishes(first.wait) == -signal.SIGKILL
        for stream in streams:
            with suppress(OSError, http.client.HTTPException):
                assert b"[DONE]" not in stream.read()
    again = (*options, "--port", str(port))
    with process(*again, **cache) as second:
        finishes(lambda: line_with(second, "listens"))
        if cache:
            folder = Path(cache["CUTAWAY_CACHE"])
            until(lambda: len(list(folder.rglob("*"))) > 5, "some kernels are compiled")
        second.send_signal(signal.SIGKILL)
        assert finishes(second.wait) == -signal.SIGKILL
    with process(*again, **cache) as third:
        assert begin(third) == port
        assert json.load(post(port, ask))["choices"] == want
        third.send_signal(signal.SIGTERM)
        _, log = finishes(third.communicate)
        assert third.returncode == 0, log


def test_a_second_server_on_the_same_port(smollm2_path: Path) -> None:
    """It says so and ends; the first goes on."""
    options = (str(smollm2_path), "--threads", "1", "--max-model-len", "256")
    with process(*options, "--port", "0") as first:
        port = begin(first)
        with process(*options, "--port", str(port)) as second:
            _, log = finishes(second.communicate)
            assert second.returncode == 1
            assert f"port {port} of 127.0.0.1 can't be listened to" in log
        assert post(port, {"prompt": "x", "max_tokens": 1}).status == 200
