"""The server's life: it listens while the model is loaded, serves, ends; or says why it can't."""

import json
import re
import signal
import socket
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import cutaway
from cutaway import LLM
from cutaway.errors import CutawayError, InvalidRequestError
from cutaway.ops.numerics import NUMERICS_VERSION
from cutaway.server.serve import address_of, listen
from cutaway.server.settings import ServerSettings
from support.http_server import RunningServer, running, until
from support.patience import SECONDS, finishes
from support.processes import line_with, process, started_as


def test_health_version_and_models(server: RunningServer) -> None:
    assert server.get("/health").json == {"status": "ok"}
    assert server.request("HEAD", "/health").status == 200
    assert server.get("/version").json == {"version": cutaway.__version__, "numerics_version": NUMERICS_VERSION}
    listed = server.get("/v1/models").json
    assert listed["object"] == "list"
    assert [each["id"] for each in listed["data"]] == ["smollm2", "another-name"]
    assert {each["max_model_len"] for each in listed["data"]} == {1024}
    assert server.get("/v1/models/another-name").json == listed["data"][1]
    refused = server.get("/v1/models/mistral/7b")
    assert (refused.status, refused.error["param"], refused.error["code"]) == (404, "model", "model_not_found")
    assert "'mistral/7b'; here is 'smollm2' or 'another-name'" in refused.error["message"]


def test_what_is_not_there(server: RunningServer) -> None:
    assert server.get("/v2/nothing").status == 404
    assert "there is no /v2/nothing" in server.get("/v2/nothing").error["message"]
    refused = server.post("/v1/models", {})
    assert refused.status == 405
    assert refused.headers["allow"] == "GET"
    assert "takes no POST; it takes GET" in refused.error["message"]


def test_while_the_model_is_loaded(llm: LLM) -> None:
    """Who asks is told to come again, until it is there."""
    may_load = threading.Event()

    def load() -> LLM:
        assert may_load.wait(SECONDS)
        return llm

    server = RunningServer(load, grace=0)
    try:
        for path in ("/health", "/v1/models"):
            refused = server.get(path)
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            assert "being loaded" in refused.error["message"]
        assert server.get("/version").status == 200
        may_load.set()
        server.wait_loaded()
        assert server.get("/health").status == 200
    finally:
        may_load.set()
        server.tell_to_end()
        server.join()


def test_listen() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert address_of(first) == f"http://127.0.0.1:{port}"
        with pytest.raises(CutawayError, match=rf"port {port} of 127\.0\.0\.1 can't be listened to \(Address already"):
            listen("127.0.0.1", port)
    with listen("127.0.0.1", port) as again:  # at once: nothing of the first is left
        assert again.getsockname()[1] == port
    for host in ("256.1.1.1", "no such host", "a" * 300 + ".example"):
        with pytest.raises(InvalidRequestError, match="no address of this machine"):
            listen(host, 0)


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")
def test_an_address_of_version_6() -> None:
    try:
        with listen("::1", 0) as listening:
            assert re.fullmatch(r"http://\[::1\]:\d+", address_of(listening))
    except CutawayError as error:
        pytest.skip(f"this machine has no ::1 ({error})")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 65536}, "port is 65536; it must be 0 to 65535"),
        ({"port": -1}, "port is -1"),
        ({"api_keys": ("good", "")}, "an API key is empty"),
        ({"api_keys": (" spaced",)}, "an API key is empty, or has spaces"),
        ({"api_keys": ("two keys",)}, "or has spaces or characters that no header can have"),
        ({"api_keys": ("schlüssel",)}, "an API key is empty, or has spaces or characters that no header"),
        ({"served_names": (" ",)}, "a served model name is empty"),
        ({"max_body_size": 0}, "max_body_size is 0"),
        ({"grace": -1.0}, "grace is -1 s"),
        ({"grace": float("nan")}, "grace is nan s"),
        ({"log_format": "xml"}, "log_format is 'xml'; it must be one of text, json"),
    ],
)
def test_settings_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(message)):
        ServerSettings(**options)


def test_the_command(smollm2_path: Path) -> None:
    """Variables are options; the log is JSON where asked; SIGTERM is an orderly end, and nothing is printed."""
    variables = {
        "CUTAWAY_PORT": "0",
        "CUTAWAY_LOG_FORMAT": "json",
        "CUTAWAY_SERVED_MODEL_NAME": "one two",
        "CUTAWAY_MAX_MODEL_LEN": "256",
        "CUTAWAY_API_KEY": "first second",
    }
    with process(str(smollm2_path), "--threads", "1", **variables) as started:
        listens = json.loads(finishes(lambda: line_with(started, "listens")))
        url = listens["message"].split()[0]
        assert url.startswith("http://127.0.0.1:")
        assert (listens["level"], "time" in listens) == ("info", True)
        assert json.loads(finishes(lambda: line_with(started, "serves")))["message"] == f"{url} serves one, two"
        request = urllib.request.Request(f"{url}/v1/models?x=secret", headers={"Authorization": "Bearer second"})
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            assert [each["max_model_len"] for each in json.load(response)["data"]] == [256, 256]
            request_id = response.headers["X-Request-Id"]
        line = json.loads(finishes(lambda: line_with(started, "/v1/models")))
        assert (
            line.items()
            >= {
                "message": "request",
                "method": "GET",
                "path": "/v1/models",
                "status": 200,
                "request_id": request_id,
            }.items()
        )
        started.send_signal(signal.SIGTERM)
        output, log = finishes(started.communicate)
        assert started.returncode == 0
        assert output == ""
        assert [json.loads(each)["message"] for each in log.splitlines()] == ["the server has ended"]


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    """What loading meets ends the server: its exit code is the error's, and nothing keeps the process alive."""
    missing = str(tmp_path / "missing.gguf")
    with process(missing, "--port", "0") as started:
        _, log = finishes(started.communicate)
        assert started.returncode == 3
        assert "missing.gguf" in log.splitlines()[-1]
        assert "Traceback" not in log


def test_the_command_line_gives_the_same(server: RunningServer, smollm2_path: Path) -> None:
    """``cutaway run`` and a request: the same tokens, and the same logprobs to the bit."""
    options = {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "repetition_penalty": 1.1, "seed": 3}
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    question = "Name a river."
    with started_as(
        "-m", "cutaway", "run", str(smollm2_path), question, "--json", "--logprobs=2", "--max-tokens=8", *arguments
    ) as started:
        output, errors = finishes(started.communicate)
    assert started.returncode == 0, errors
    said = json.loads(output)
    reply = server.chat(
        **options,
        messages=[{"role": "user", "content": question}],
        max_tokens=8,
        logprobs=True,
        top_logprobs=2,
        return_token_ids=True,
    ).json
    (choice,) = reply["choices"]
    assert reply["prompt_token_ids"] == said["prompt_token_ids"]
    assert choice["token_ids"] == said["token_ids"]
    assert choice["message"]["content"] == said["text"]
    for mine, theirs in zip(choice["logprobs"]["content"], said["logprobs"], strict=True):
        assert mine["logprob"] in [each["logprob"] for each in theirs]
        assert [each["logprob"] for each in mine["top_logprobs"]] == [each["logprob"] for each in theirs[:2]]


NEVER_LOADED = """
import sys, time
import cutaway.engine.llm
cutaway.engine.llm.LLM = lambda *given, **options: time.sleep(1e6)
from cutaway.cli.main import main
sys.argv = ["cutaway", "serve", "smollm2", "--port", "0"]
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_end_comes_while_the_model_is_loaded(number: signal.Signals) -> None:
    with started_as("-c", NEVER_LOADED) as started:
        finishes(lambda: line_with(started, "listens"))
        started.send_signal(number)
        finishes(started.wait)
        assert started.returncode == 130


def test_requests_have_lines_without_text(llm: LLM, caplog: pytest.LogCaptureFixture) -> None:
    with running(llm) as server, caplog.at_level("INFO", "cutaway.server"):
        reply = server.get("/v1/models?secret=1")
        server.get("/%0Aline")
        until(lambda: len(caplog.records) == 2, "its line, which may come after the reply")
    fields = [record.fields for record in caplog.records if record.name == "cutaway.server.request"]  # type: ignore[attr-defined]
    assert [each["status"] for each in fields] == [200, 404]
    assert fields[0]["request_id"] == reply.headers["x-request-id"]
    assert [each["path"] for each in fields] == ["/v1/models", "/%0Aline"]
    assert fields[0]["client"].startswith("127.0.0.1:")
