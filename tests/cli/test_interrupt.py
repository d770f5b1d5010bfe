"""Ctrl-C: while an answer streams, while kernels are compiled, while a model is fetched."""

import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command import COMMAND, cutaway, environment, start

from support.patience import SECONDS

STORY = ("run", "smollm2", "Tell me a long story about the sea.", "--max-tokens", "8000")
STORY += ("--temperature", "2", "--seed", "1")  # one that goes on for more than a thousand tokens


def read_until(descriptor: int, enough: Callable[[bytes], bool]) -> bytes:
    """What comes until it is enough or the other side has ended."""
    text, end = b"", time.monotonic() + SECONDS
    while not enough(text):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"nothing more than {text!r}"
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # how a terminal ends
            break
        if not piece:
            break
        text += piece
    return text


def processes_with(text: str) -> list[int]:
    """Processes that have it in their environment, which children inherit."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and text.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_while_streaming_into_a_pipe(smollm2_path: Path) -> None:
    assert cutaway("run", "smollm2", "hi", "--max-tokens", "2").returncode == 0  # all is compiled
    process = start(*STORY)
    assert process.stdout is not None
    said = read_until(process.stdout.fileno(), lambda text: len(text) > 40)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert len(said) > 40
    assert rest.endswith(b"\n")
    assert re.fullmatch(
        r"39 prompt tokens .* \d+ tokens at \d+ tok/s · interrupted · temperature 2, top-p 0.9 · seed \d+\n",
        errors.decode(),
    )


def test_while_streaming_on_a_terminal(smollm2_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        process = start(*STORY, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(TERM="xterm"))
        os.close(theirs)
        text = read_until(ours, lambda text: len(text) > 60)
        process.send_signal(signal.SIGINT)
        text += read_until(ours, lambda text: False)
        assert process.wait(SECONDS) == 130
    finally:
        os.close(ours)
    assert "· interrupted · temperature 2, top-p 0.9 · seed" in text.decode()
    assert b"Traceback" not in text


INTERRUPT_ITSELF = """
import os, signal
from cutaway.cli.main import main
from cutaway.engine.llm import Stream
following = Stream.__next__
count = 0
def interrupt_after_5(stream):
    global count
    delta = following(stream)
    count += 1
    if count == 5:
        os.kill(os.getpid(), signal.SIGINT)
    return delta
Stream.__next__ = interrupt_after_5
main()
"""


def test_as_json_what_was_said_is_reported(smollm2_path: Path) -> None:
    command = [*COMMAND[:1], "-c", INTERRUPT_ITSELF, *STORY, "--json"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=SECONDS)
    assert result.returncode == 130
    assert "Traceback" not in result.stderr
    report = json.loads(result.stdout)
    assert report["finish_reason"] == "interrupted"
    assert report["generated_tokens"] == len(report["token_ids"]) == 5


def test_while_compiling(smollm2_path: Path, tmp_path: Path) -> None:
    """It ends at once, and so does the second process that compiles; the cache has whole files only."""
    cache = tmp_path / "cache"
    env = environment(CUTAWAY_CACHE=str(cache))
    process = start("run", smollm2_path, "hi", env=env)
    assert process.stderr is not None
    read_until(process.stderr.fileno(), lambda text: b"compiling kernels" in text)
    end = time.monotonic() + SECONDS
    while len(processes_with(str(cache))) < 2:
        assert time.monotonic() < end, "nobody helps"
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert output == b""
    assert b"Traceback" not in errors
    while processes_with(str(cache)) and time.monotonic() < end:
        time.sleep(0.05)
    assert processes_with(str(cache)) == []
    (folder,) = (cache / "kernels").iterdir()
    assert [path.name for path in folder.iterdir() if path.suffix != ".nbc"] == []
    shutil.rmtree(cache)


@pytest.mark.parametrize("command", [["pull", "smollm2"], ["run", "smollm2", "hi"]])
def test_while_fetching(tmp_path: Path, command: list[str]) -> None:
    """From an index that takes the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as index:
        index.settimeout(SECONDS)
        env = environment(
            CUTAWAY_CACHE=str(tmp_path / "cache"),
            PIP_INDEX_URL=f"http://127.0.0.1:{index.getsockname()[1]}/simple",
            PIP_CONFIG_FILE=os.devnull,
            no_proxy="127.0.0.1",
        )
        process = start(*command, env=env)
        connection, _ = index.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert output == b""
    assert b"Traceback" not in errors
    assert [path.suffix for path in (tmp_path / "cache" / "models").iterdir()] == [".lock"]


@pytest.mark.parametrize("module", ["cutaway.cli", "typer", "rich.console", "cutaway.hub.fetch", "cutaway.cli.walk"])
def test_while_the_command_is_loaded(smollm2_path: Path, module: str) -> None:
    """Python tells of each module when it has been loaded, here from the first of the command line to the last; then
    the command would wait for its input.
    """
    env = environment(PYTHONPROFILEIMPORTTIME="1")
    process = start("tokenize", smollm2_path, stdin=subprocess.PIPE, env=env)
    assert process.stderr is not None
    read_until(process.stderr.fileno(), lambda text: f" {module}\n".encode() in text)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS)
    assert b"Traceback" not in errors
    assert process.returncode in (130, -signal.SIGINT)
