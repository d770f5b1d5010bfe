"""The page on the server: its curl commands and its Python run as they stand, against a server, and say what it says.

The page has an address of its own. curl is told by its settings where that is to be found; Python's block is given
another one.
"""

import contextlib
import io
import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cutaway import LLM, SamplingParams
from support.http_server import RunningServer
from support.markdown import blocks
from support.patience import SECONDS

PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text("utf-8")
HOST, PORT = "127.0.0.1", 8000


def curl_commands() -> list[str]:
    """Each as it stands, of several lines where it has them."""
    lines = [
        line
        for block in blocks(PAGE)
        if block.language == "sh"
        for line in block.text.replace("\\\n", "\\\0").splitlines()
    ]
    return [line.replace("\0", "\n") for line in lines if line.startswith("curl ")]


def test_the_page_has_examples() -> None:
    commands = curl_commands()
    assert len(commands) >= 1
    assert all(f"http://{HOST}:{PORT}/" in command for command in commands)


@pytest.mark.skipif(shutil.which("curl") is None, reason="wants curl: apt-get install curl")
@pytest.mark.parametrize("command", curl_commands())
def test_curl(command: str, server: RunningServer, llm: LLM, tmp_path: Path) -> None:
    (tmp_path / ".curlrc").write_text(
        f'connect-to = "{HOST}:{PORT}:{HOST}:{server.port}"\nfail-with-body\nsilent\nshow-error\n', "utf-8"
    )
    ended = subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=SECONDS,
        env={**os.environ, "CURL_HOME": str(tmp_path), "HOME": str(tmp_path), "no_proxy": "*"},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    words = shlex.split(command)
    if f"http://{HOST}:{PORT}/v1/chat/completions" in words and "-d" in words:
        body = json.loads(words[words.index("-d") + 1])
        if not body.get("stream"):
            params = {name: value for name, value in body.items() if name not in ("messages", "model")}
            (choice,) = json.loads(ended.stdout)["choices"]
            assert choice["message"]["content"] == chat(llm, body["messages"], **params)


def chat(llm: LLM, messages: Any, **fields: Any) -> str:
    """The engine's own answer; OpenAI's limit is the context where the request has none."""
    params = SamplingParams(**{"max_tokens": None, **fields})
    return llm.chat(messages, params, use_tqdm=False)[0].outputs[0].text


def test_python(server: RunningServer) -> None:
    (code,) = (block.text for block in blocks(PAGE) if "from openai import" in block.text)
    assert code.count(f"http://{HOST}:{PORT}/v1") == 1
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code.replace(f":{PORT}/", f":{server.port}/"), "docs/server.md", "exec"), {"__name__": "docs"})
    assert len(printed.getvalue().split()) > 5
