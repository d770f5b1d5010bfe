"""Models of the Hugging Face hub on the command line, from a hub of our own: each command is a new process, which finds
the hub by its variables.
"""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import COMMAND, assert_refused, cutaway, environment, files_below, start

from support.hub_server import COMMIT, TOKEN, HubServer, Repository
from support.patience import SECONDS
from support.tiny_llama import write_tiny_llama


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf").read_bytes()


@pytest.fixture
def hub(tiny: bytes) -> Iterator[HubServer]:
    files = {"tiny-Q4_1.gguf": tiny, "other-Q8_0.gguf": tiny[:-1]}
    with HubServer(
        {
            "owner/tiny": Repository(files),
            "owner/gated": Repository({"tiny.gguf": tiny}, gated=True),
            "Qwen/Qwen2.5-0.5B-Instruct-GGUF": Repository(
                {"qwen2.5-0.5b-instruct-q4_k_m.gguf": tiny, "qwen2.5-0.5b-instruct-q8_0.gguf": tiny}
            ),
        }
    ) as running:
        yield running


@pytest.fixture
def env(hub: HubServer, tmp_path: Path) -> dict[str, str]:
    own = environment(HF_HOME=str(tmp_path / "hf"), HF_ENDPOINT=hub.url, CUTAWAY_CACHE=str(tmp_path / "cache"))
    proxies = ("http_proxy", "https_proxy", "all_proxy")
    unwanted = ("HF_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE", "HF_TOKEN_PATH", "XDG_CACHE_HOME")
    return {name: value for name, value in own.items() if name not in unwanted and name.lower() not in proxies}


def test_pull_ls_show_rm(env: dict[str, str], tmp_path: Path, tiny: bytes) -> None:
    folder = tmp_path / "hf" / "hub" / "models--owner--tiny" / "snapshots" / COMMIT
    pulled = cutaway("pull", "owner/tiny:q4_1", env=env)
    assert (pulled.returncode, pulled.stdout) == (0, f"{folder / 'tiny-Q4_1.gguf'}\n")
    assert pulled.stderr == "downloading …\nchecking …\n"
    (listed,) = json.loads(cutaway("ls", "--json", env=env).stdout)
    assert (listed["name"], listed["bytes"], listed["family"], listed["type"]) == (
        "owner/tiny",
        len(tiny),
        "llama",
        "Q4_1",
    )
    shown = json.loads(cutaway("show", "owner/tiny", "--json", env={**env, "HF_HUB_OFFLINE": "1"}).stdout)
    assert shown["path"] == str(folder / "tiny-Q4_1.gguf")
    assert shown["metadata"]["general.name"] == "tiny"
    assert_refused(cutaway("rm", "owner/tiny", env=env), 2, "that other programs share", "add --yes", "tiny-Q4_1.gguf")
    assert (folder / "tiny-Q4_1.gguf").is_file()
    removed = cutaway("rm", "owner/tiny", "--yes", env=env)
    assert (removed.returncode, removed.stderr) == (0, "")
    assert removed.stdout.endswith(" MB freed\n")
    assert cutaway("rm", "owner/tiny", env=env).stdout == "owner/tiny was not in the cache\n"
    assert not (tmp_path / "hf" / "hub" / "models--owner--tiny").exists()
    assert cutaway("ls", env=env).stdout == ""


def test_an_alias_of_the_hub(env: dict[str, str], hub: HubServer) -> None:
    pulled = cutaway("pull", "qwen2.5-0.5b", env=env)
    assert pulled.stdout.endswith("/qwen2.5-0.5b-instruct-q4_k_m.gguf\n"), pulled.stderr
    assert json.loads(cutaway("show", "qwen2.5-0.5b", "--json", env=env).stdout)["licence"] == "Apache-2.0"
    assert [headers.get("range") for headers in hub.seen("/storage/")] == [None]
    other = cutaway("pull", "qwen2.5-0.5b:Q8_0", env=env)
    assert other.stdout.endswith("/qwen2.5-0.5b-instruct-q8_0.gguf\n"), other.stderr
    assert cutaway("rm", "qwen2.5-0.5b:Q8_0", "--yes", env=env).returncode == 0
    assert not Path(other.stdout.strip()).exists()
    assert Path(pulled.stdout.strip()).exists()


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"y\n", 0)])
def test_rm_asks_on_a_terminal(env: dict[str, str], answer: bytes, code: int) -> None:
    path = Path(cutaway("pull", "owner/tiny:Q4_1", env=env).stdout.strip())
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        result = subprocess.run(
            [*COMMAND, "rm", "owner/tiny"],
            stdin=theirs,
            capture_output=True,
            text=True,
            env=env,
            timeout=SECONDS,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert result.returncode == code, result.stderr
    assert "Remove" in result.stderr
    assert "tiny-Q4_1.gguf" in result.stderr
    assert path.exists() == (code == 1)


def test_a_token_in_the_environment(env: dict[str, str]) -> None:
    assert_refused(cutaway("pull", "owner/gated", env=env), 4, "owner/gated is gated", "set HF_TOKEN")
    assert cutaway("pull", "owner/gated", env={**env, "HF_TOKEN": TOKEN}).returncode == 0


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "CUTAWAY_OFFLINE"])
def test_offline(env: dict[str, str], hub: HubServer, variable: str) -> None:
    result = cutaway("run", "owner/tiny:Q4_1", "hi", env={**env, variable: "1"})
    assert_refused(result, 4, "owner/tiny is not in the cache", f"{variable} forbids the network")
    assert hub.requests == []


def test_ambiguous_and_absent(env: dict[str, str]) -> None:
    assert_refused(cutaway("run", "owner/tiny", "hi", env=env), 2, "owner/tiny:Q8_0", "tiny-Q4_1.gguf")
    assert_refused(cutaway("pull", "owner/none", env=env), 4, "has no repository 'owner/none'")


def test_ctrl_c_leaves_nothing_half_written(env: dict[str, str], hub: HubServer, tmp_path: Path) -> None:
    hub.faults.stalls_after = 1000
    process = start("pull", "owner/tiny:Q4_1", env=env)
    assert hub.stalled.wait(SECONDS)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert b"Traceback" not in errors
    left = [name for name in files_below(tmp_path / "hf") if not name.endswith((".lock", "CACHEDIR.TAG"))]
    assert left == ["main"], "the name of the commit"


def test_the_client_is_loaded_for_names_of_the_hub_only() -> None:
    code = "import sys, cutaway, cutaway.cli.main; sys.exit('huggingface_hub' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=SECONDS, check=False).returncode == 0
