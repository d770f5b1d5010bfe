"""Arguments: help, versions, and every one that is refused, before anything is fetched, compiled or loaded."""

import os
import pty
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command import COMMAND, assert_refused, cutaway, cutaway_here, environment, files_below

import cutaway as package
from cutaway.cli.main import app
from support.patience import SECONDS

COMMANDS = [
    "run",
    "chat",
    "serve",
    "walk",
    "trace",
    "verify",
    "receipts",
    "tokenize",
    "train-tokenizer",
    "pull",
    "ls",
    "rm",
    "show",
    "shapes",
    "plan",
    "bench",
    "ladder",
    "parity",
    "doctor",
]


@pytest.fixture
def nothing_here(tmp_path: Path) -> dict[str, str]:
    """An environment in which a model could only be fetched, and may not: whatever got that far would end with 4."""
    return environment(CUTAWAY_CACHE=str(tmp_path / "cache"), CUTAWAY_OFFLINE="1")


Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def in_nothing(
    nothing_here: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    """The command in this process, in that environment and an empty folder."""
    for name in ("CUTAWAY_CACHE", "CUTAWAY_OFFLINE"):
        monkeypatch.setenv(name, nothing_here[name])
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: cutaway_here(monkeypatch, capsys, *arguments)


def test_version() -> None:
    result = cutaway("--version")
    assert (result.stdout, result.stderr, result.returncode) == (f"cutaway {package.__version__}\n", "", 0)


def test_help_names_every_command() -> None:
    names = [
        command.name or getattr(command.callback, "__name__", "").replace("_", "-")
        for command in app.registered_commands
    ]
    assert names == COMMANDS
    result = cutaway("--help")
    assert result.returncode == 0
    for name in COMMANDS:
        assert re.search(rf"^\W*{name}\b", result.stdout, re.MULTILINE), name


def test_without_arguments_help_is_shown_and_the_exit_code_says_that_nothing_was_done() -> None:
    result = cutaway()
    assert result.returncode == 2
    assert result.stdout == cutaway("-h").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    result = cutaway_here(monkeypatch, capsys, name, "--help")
    assert result.returncode == 0
    assert result.stderr == ""
    assert f"cutaway {name}" in result.stdout
    assert "\x1b" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 60


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["frobnicate"], ["No such command 'frobnicate'", "See cutaway --help."]),
        (["run"], ["Missing argument", "See cutaway run --help."]),
        (["run", "smollm2", "a", "b"], ["unexpected extra argument", "b"]),
        (["run", "smollm2", "hi", "--bogus"], ["No such option: --bogus"]),
        (["run", "smollm2", "hi", "--temperature", "abc"], ["'--temperature'"]),
        (["run", "smollm2", "hi", "--top-k", "1.5"], ["'--top-k'"]),
        (["run", "smollm2", "hi", "--temperature", "-1"], ["temperature is -1.0; it must be a number from 0 to 100"]),
        (["run", "smollm2", "hi", "--temperature", "nan"], ["temperature is nan; it must be a number from 0 to 100"]),
        (["run", "smollm2", "hi", "--top-p", "0"], ["top_p is 0.0; it must be a number above 0 and at most 1"]),
        (["run", "smollm2", "hi", "--min-p", "-0.1"], ["min_p is -0.1; it must be a number from 0 to 1"]),
        (["run", "smollm2", "hi", "--top-k", "-5"], ["top_k is -5; it must be an integer of at least -1"]),
        (["run", "smollm2", "hi", "--seed", str(2**64)], [f"seed is {2**64}; it must be an integer from"]),
        (["run", "smollm2", "hi", "--max-tokens", "0"], ["max_tokens is 0; it must be an integer of at least 1"]),
        (["run", "smollm2", "hi", "--threads", "0"], ["threads is 0; it must be 1 to 256"]),
        (["run", "smollm", "hi"], ["unknown model 'smollm'. Did you mean smollm2?", "Known names: smollm2"]),
        (["run", "", "hi"], ["the model's name is empty"]),
        (["run", "smollm2", ""], ["the prompt is empty"]),
        (["run", "smollm2"], ["the prompt is empty"]),
        (["run", "smollm2", "hi", "-f", "prompt.txt"], ["there are a prompt and --file; give one of them"]),
        (["run", "smollm2", "-f", "missing.txt"], ["--file 'missing.txt' can't be read (No such file or directory)"]),
        (["run", "smollm2", "-f", "."], ["--file '.' can't be read (Is a directory)"]),
        (["run", "smollm2", b"\xff"], ["the prompt has a lone surrogate, U+DCFF, at position 0"]),
        (["run", "smollm2", "hi", "--raw", "--chat-template", "chatml"], ["there are --chat-template and --raw"]),
        (["walk", "smollm2", "hi", "--raw", "--chat-template", "chatml"], ["there are --chat-template and --raw"]),
        (
            ["trace", "smollm2", "hi"],
            ["there is no tap", "--tap 'layers.*.resid'", "--report FILE or --explanation FILE"],
        ),
        (["trace", "smollm2", "hi", "--at", "3"], ["there is no --explain. Add it, or leave --at"]),
        (["rm", "nosuch"], ["'nosuch' names no fetched model", "Known names: smollm2"]),
        (["rm", "../models"], ["'../models' names no fetched model"]),
        (["rm", "."], ["rm removes fetched models only; delete it yourself"]),
        (["run", "https://huggingface.co/Qwen/X", "hi"], ["is an address; write Qwen/X\n"]),
        (["show", "nosuch"], ["unknown model 'nosuch'"]),
    ],
)
def test_what_is_refused(in_nothing: Command, tmp_path: Path, arguments: list[str | bytes], parts: list[str]) -> None:
    assert_refused(in_nothing(*arguments), 2, *parts)
    assert files_below(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["run"], 2, "Missing argument"),
        (["run", "smollm2", "hi", "--temperature", "-1"], 2, "temperature is -1.0"),
        (["run", "smollm2", "hi", "--threads", "0"], 2, "threads is 0"),
        (["run", "smollm2", b"\xff"], 2, "U+DCFF"),
        (["show", "nosuch"], 2, "unknown model 'nosuch'"),
        (["run", b"\xff.gguf", "hi"], 3, "'\\udcff.gguf'"),
    ],
)
def test_a_process_that_is_refused_has_compiled_nothing(
    nothing_here: dict[str, str], tmp_path: Path, arguments: list[str | bytes], code: int, part: str
) -> None:
    assert_refused(cutaway(*arguments, env=nothing_here, cwd=tmp_path), code, part)
    assert files_below(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("missing.gguf", ["no such file: 'missing.gguf'", "holds no .gguf file"]),
        ("[bold]x[/bold].gguf", ["no such file: '[bold]x[/bold].gguf'"]),
        ("[/].gguf", ["no such file: '[/].gguf'"]),
        (":heart:.gguf", ["no such file: ':heart:.gguf'"]),
        ("./[red]", ["no such file: './[red]'"]),
        (b"\xff.gguf", ["no such file: '\\udcff.gguf'"]),
        (".", ["the folder . has no GGUF model"]),
        ("/dev/null", ["'/dev/null' is a device"]),
    ],
)
def test_paths_are_printed_as_they_are(
    in_nothing: Command, tmp_path: Path, name: str | bytes, parts: list[str]
) -> None:
    assert_refused(in_nothing("run", name, "hi"), 3, *parts)
    assert files_below(tmp_path) == []


@pytest.mark.parametrize(("given", "byte"), [(b"caf\xe9", "byte 3 is 0xe9"), (b"\xff\xfeh\x00", "byte 0 is 0xff")])
def test_a_prompt_that_is_not_utf_8(nothing_here: dict[str, str], tmp_path: Path, given: bytes, byte: str) -> None:
    result = cutaway("run", "smollm2", given=given, env=nothing_here)
    assert_refused(result, 2, f"standard input is not UTF-8 text: {byte}")
    (tmp_path / "prompt.txt").write_bytes(given)
    result = cutaway("run", "smollm2", "-f", "prompt.txt", env=nothing_here, cwd=tmp_path)
    assert_refused(result, 2, f"prompt.txt is not UTF-8 text: {byte}")


def test_no_prompt_on_a_terminal(nothing_here: dict[str, str]) -> None:
    """It doesn't wait for somebody to type."""
    ours, theirs = pty.openpty()
    try:
        command = [*COMMAND, "run", "smollm2"]
        result = subprocess.run(
            command, stdin=theirs, capture_output=True, text=True, env=nothing_here, timeout=SECONDS
        )
        assert_refused(result, 2, "there is no prompt. Write it behind the model's name")
    finally:
        os.close(ours)
        os.close(theirs)


def test_errors_on_a_terminal_are_red_unless_no_color() -> None:
    def error(**changes: str) -> str:
        ours, theirs = pty.openpty()
        try:
            env = environment(TERM="xterm", **changes)
            subprocess.run(
                [*COMMAND, "rm", "nosuch"], stdin=theirs, stdout=theirs, stderr=theirs, env=env, timeout=SECONDS
            )
            return os.read(ours, 10_000).decode()
        finally:
            os.close(ours)
            os.close(theirs)

    assert "\x1b[1;31merror:" in error()
    assert not re.search(r"\x1b\[[\d;]*3\d", error(NO_COLOR="1"))


def test_offline_without_the_model(nothing_here: dict[str, str]) -> None:
    result = cutaway("pull", "smollm2", env=nothing_here)
    assert result.returncode == 4
    assert "CUTAWAY_OFFLINE is set" in result.stderr
    assert "cutaway run path/to/SmolLM2-135M-Instruct.Q4_1.gguf" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_home_that_can_t_be_written() -> None:
    env = environment(HOME="/dev/null/nowhere")
    for name in ("CUTAWAY_CACHE", "XDG_CACHE_HOME"):
        env.pop(name, None)
    assert_refused(cutaway("pull", "smollm2", env=env), 4, "/dev/null/nowhere/.cache", "Set CUTAWAY_CACHE to a folder")
    listed = cutaway("ls", env=env)
    assert (listed.returncode, listed.stdout) == (0, "")


def test_kernels_without_a_cache(tmp_path: Path) -> None:
    """They go to a temporary folder, which goes at the end, and one line says so."""
    env = environment(HOME="/dev/null/nowhere", TMPDIR=str(tmp_path), CUTAWAY_CACHE="/dev/null/nowhere")
    code = (
        "from cutaway.cli.main import main\nimport cutaway.cli.models as models, sys\n"
        "def installed():\n"
        "    from cutaway.ops.kernel_files import cache_folder\n"
        "    print(cache_folder())\n"
        "    return []\n"
        "models.installed = installed\nsys.argv[1:] = ['ls']\nmain()\n"
    )
    command = [*COMMAND[:1], "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, env=env, timeout=SECONDS, check=True)
    assert Path(result.stdout.strip()).parent == tmp_path
    assert list(tmp_path.iterdir()) == []
    warning, hint = result.stderr.splitlines()
    assert warning.startswith("warning: compiled kernels can't be kept in /dev/null/nowhere/kernels/")
    assert warning.endswith("Set CUTAWAY_CACHE to a folder that can be written.")
    assert hint.startswith("no models yet")
