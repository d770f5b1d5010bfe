"""``cutaway chat``: turns and commands from a pipe, and a real terminal with its keys."""

import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command import COMMAND, assert_refused, cutaway, environment

from cutaway.cli.chat_commands import ChatState, run_command
from cutaway.errors import CutawayError
from cutaway.hub.paths import cache_root
from cutaway.sampling.params import SamplingParams
from support.patience import SECONDS

QUICK = ("--max-tokens", "12", "--seed", "1", "--threads", "2")


def chat(*lines: str, options: tuple[str, ...] = QUICK) -> "subprocess.CompletedProcess[str]":
    return cutaway("chat", "smollm2", *options, given="".join(f"{line}\n" for line in lines).encode())


@pytest.fixture(scope="module")
def warm(smollm2_path: Path) -> None:
    """All is compiled."""
    assert chat("/bye").returncode == 0


def test_each_line_of_a_pipe_is_a_turn(smollm2_path: Path) -> None:
    result = chat("Hello", "", "  ", "Name a colour")
    assert result.returncode == 0, result.stderr
    turns = re.findall(
        r"^(\d+) prompt tokens: (\d+) reused, (\d+) new · (\d+) tokens at \d+ tok/s · (\d+) of 8192 positions · .*"
        r" · seed 1$",
        result.stderr,
        re.MULTILINE,
    )
    assert len(turns) == 2
    (prompt, reused, new, said, used), (prompt2, reused2, new2, _, _) = (tuple(map(int, turn)) for turn in turns)
    assert (reused, new) == (0, prompt)
    assert used == prompt + said
    assert (prompt2, reused2) == (reused2 + new2, used - 1)
    assert result.stdout.count("\n") == 2


def test_commands(smollm2_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "chat with spaces.json"
    result = chat(
        "/system You are brief. [bold]",
        "Hello",
        f"/save {file}",
        "/undo",
        "/set temperature 0.2",
        '/set stop ["x", "y"]',
        "/set",
        "/stats",
        "/clear",
        f"/load {file}",
        "/system",
        "/help",
        "/bye",
        "never asked",
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") == 1
    saved = json.loads(file.read_text("utf-8"))
    assert [each["role"] for each in saved["messages"]] == ["system", "user", "assistant"]
    assert saved["messages"][0]["content"] == "You are brief. [bold]"
    assert saved["messages"][2]["content"] == result.stdout.removesuffix("\n")
    assert saved["parameters"]["seed"] == 1
    for line in (
        "saved 3 messages",
        "the last question and its answer are taken back.",
        "temperature 0.2",
        'stop ["x", "y"]',
        "bytes reserved",
        "the history is empty, the system message stays.",
        "loaded 3 messages",
        "system: You are brief. [bold]",
        "/undo    take the last",
    ):
        assert line in result.stderr, line


def test_a_loaded_chat_goes_on_as_the_saved_one(smollm2_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    first = chat("My name is Ada.", f"/save {file}", "What is my name?")
    second = chat(f"/load {file}", "What is my name?", options=("--threads", "1"))
    assert second.returncode == 0, second.stderr
    assert second.stdout == first.stdout.split("\n", 1)[1]


def state() -> ChatState:
    """A chat without a model, for the commands that need none."""
    conversation: Any = SimpleNamespace(messages=[], system=None, undo=lambda: False)
    model: Any = SimpleNamespace(model=SimpleNamespace(name="a model"))
    return ChatState(model, conversation, SamplingParams())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/foo", "there is no command /foo; there are /help, /system,"),
        ("/set temperature -1", "temperature is -1; it must be a number from 0 to 100"),
        ("/set temprature 1", "there is no parameter 'temprature'; there are "),
        ("/set temperature warm", "temperature is 'warm'"),
        ("/set seed 1e400", "seed is inf"),
        ("/set n 2", "n is 2; in a chat it must be 1"),
        ("/set logprobs 0", "logprobs is 0; in a chat it must be None"),
        ("/set prompt_logprobs 1", "prompt_logprobs is 1; in a chat it must be None"),
        ("/set detokenize false", "detokenize is False; in a chat it must be True"),
        ("/undo", "there is nothing to undo"),
        ("/save", "/save needs a path. Example: /save chat.json"),
        ("/save /no/such/folder/x.json", "/no/such/folder/x.json can't be written (No such file or directory)"),
        ("/save /", "/ can't be written"),
        ("/load /no/such/file", "/no/such/file can't be read (No such file or directory)"),
        ("/load /", "/ can't be read (Is a directory)"),
        ("/load ''", "/load needs a path. Example: /load chat.json"),
        ("/load /dev/null", "/dev/null is not valid JSON (line 1, column 1: "),
        ("/save a\0b", "the path 'a\\x00b' is none"),
        ("/load a\0b", "the path 'a\\x00b' is none"),
        ("/save ~nobody-of-this-name/x", "the path '~nobody-of-this-name/x' is none"),
        ("/load ~nobody-of-this-name/x", "the path '~nobody-of-this-name/x' is none"),
        ("/set logprobs 2", "logprobs is 2; in a chat it must be None"),
        ("/set prompt_logprobs 0", "prompt_logprobs is 0; in a chat it must be None"),
    ],
)
def test_commands_that_are_refused_change_nothing(line: str, message: str) -> None:
    before = state()
    with pytest.raises(CutawayError, match=re.escape(message)):
        run_command(before, line)
    assert (before.params, before.conversation.messages) == (SamplingParams(), [])


def test_a_value_that_is_nested_too_deeply_to_be_json_is_a_text() -> None:
    chat = state()
    run_command(chat, "/set stop " + "[" * 200_000)
    assert chat.params.stop == ("[" * 200_000,)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "its 'format' is not"),
        ('{"format": "cutaway-chat-1"}', "messages is a NoneType"),
        ('{"format": "cutaway-chat-1",\n "messages" []}', "line 2, column 13: Expecting ':'"),
        ('{"format": "cutaway-chat-1", "messages": [{"role": "user"}]}', "messages[0] must have"),
        ('{"format": "cutaway-chat-1", "messages": [{"role": "user", "content": "\\ud800"}]}', "lone surrogate"),
        ('{"format": "cutaway-chat-1", "messages": [], "parameters": []}', "'parameters' is a list"),
        ('{"format": "cutaway-chat-1", "messages": [], "parameters": {"temperature": 1e400}}', "temperature is inf"),
        ('{"format": "cutaway-chat-1", "messages": [], "parameters": {"n": 2}}', "n is 2; in a chat it must be 1"),
        ('{"format": "cutaway-chat-1", "messages": [], "parameters": {"self": 1}}', "'self' is no sampling parameter"),
        ("[" * 100_000, "is not valid JSON"),
        ("\ud83d".encode("utf-8", "surrogatepass").decode("latin-1"), "is not valid JSON"),
    ],
)
def test_files_that_are_no_chats(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content, "latin-1")
    before = state()
    with pytest.raises(CutawayError, match=re.escape(message)):
        run_command(before, f'/load "{file}"')
    assert (before.params, before.conversation.messages) == (SamplingParams(), [])


def test_both_ways_to_set() -> None:
    chat = state()
    for line in ("/set temperature 0.2", "/set temperature=0.2", "/set temperature = 0.2"):
        chat.params = SamplingParams()
        run_command(chat, line)
        assert chat.params.temperature == 0.2
    run_command(chat, '/set stop ["a=b", "c d"]')
    assert chat.params.stop == ("a=b", "c d")


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("/foo", 2, "there is no command /foo; "),
        ('"""never closed', 2, "the input ended within"),
        ("\udcff", 2, "UTF-8"),
    ],
)
def test_what_goes_wrong_in_a_pipe_ends_it_with_one_line(warm: None, line: str, code: int, message: str) -> None:
    given = f"{line}\n".encode("utf-8", "surrogateescape")
    assert_refused(cutaway("chat", "smollm2", *QUICK, given=given), code, message)


def test_several_lines_between_quotes(smollm2_path: Path, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    result = chat('"""one', "two", 'three"""', f"/save {file}")
    assert result.returncode == 0, result.stderr
    assert json.loads(file.read_text("utf-8"))["messages"][0]["content"] == "one\ntwo\nthree"


def test_the_end_of_the_context_is_told_and_nothing_is_lost(smollm2_path: Path) -> None:
    result = chat("Tell me a story", "/set max_tokens 2", "more", options=("--context", "64", "--temperature", "2"))
    assert "the context is full: /undo, /clear, or start with a larger --context" in result.stderr
    assert "error: the prompt has " in result.stderr
    assert "the context holds 64" in result.stderr
    assert result.returncode == 5


class Terminal:
    """A chat in a terminal of its own.

    cache: a folder; it gets this cache's models and kernels, and a history of its own.
    """

    def __init__(self, cache: Path, command: Sequence[str] = COMMAND) -> None:
        for name in ("models", "kernels"):
            (cache_root() / name).mkdir(exist_ok=True)
            (cache / name).symlink_to(cache_root() / name)
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [*command, "chat", "smollm2", *QUICK],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(CUTAWAY_CACHE=str(cache), TERM="xterm", COLUMNS="100"),
            start_new_session=True,
            preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
        )
        os.close(slave)
        self.text = ""

    def wait_for(self, pattern: str) -> str:
        """What came since the last call, up to and with the pattern."""
        end = time.monotonic() + SECONDS
        while not (match := re.search(pattern, self.text)):
            ready, _, _ = select.select([self.master], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"no {pattern!r} in {self.text!r}"
            self.text += os.read(self.master, 65536).decode("utf-8", "replace")
        before, self.text = self.text[: match.end()], self.text[match.end() :]
        return before

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def throw_away(self, text: str) -> None:
        """Type a text and Ctrl-C, once. CPython's ``input`` doesn't see a signal that comes before it waits for a key,
        until the line is complete, and then throws away that. So here it comes while the main thread sleeps after the
        last letter's echo, which can be in that wait alone.
        """
        self.wait_for_sleep()  # else the terminal itself may echo what is typed before the prompt is there
        self.type(text)
        self.wait_for(re.escape(text))
        self.wait_for_sleep()
        self.type("\x03")
        self.wait_for(">>> ")

    def wait_for_sleep(self) -> None:
        end = time.monotonic() + SECONDS
        while Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < end, "it never waits for a key"
            time.sleep(0.001)

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(SECONDS)
        os.close(self.master)


@pytest.fixture
def terminal(smollm2_path: Path, tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    opened.end()


SUMMARY = r"prompt tokens: .* seed 1"


def test_keys(terminal: Terminal, tmp_path: Path) -> None:
    terminal.wait_for(">>> ")
    terminal.type("Hllo\x1b[D\x1b[D\x1b[De\r")  # three to the left, and the letter that is missing
    terminal.wait_for(SUMMARY)
    terminal.wait_for(">>> ")
    terminal.type("\x1b[A\r")  # the line before
    second = terminal.wait_for(SUMMARY)
    assert "Hello" in second
    terminal.wait_for(">>> ")
    terminal.throw_away("thrown away")
    terminal.type("/nonsense\r")
    terminal.wait_for("there is no command /nonsense")
    terminal.wait_for(">>> ")
    terminal.type("/set max_tokens 4000\r")
    terminal.wait_for(">>> ")
    terminal.type("/set temperature 2\r")
    terminal.wait_for(">>> ")
    terminal.type("Tell me a long story\r")
    terminal.wait_for(r"story\s+\S+ \S+ \S+ \S+ \S+ ")
    terminal.type("\x03")
    assert " stopped " in terminal.wait_for(SUMMARY)
    terminal.wait_for(">>> ")
    terminal.type("/stats\r")
    assert "6 messages" in terminal.wait_for(">>> ")
    terminal.type("\x04")
    assert terminal.process.wait(SECONDS) == 0
    history = tmp_path / "chat_history"
    assert history.read_text("utf-8").splitlines() == [
        "Hello",  # once, though it was asked twice
        "/nonsense",
        "/set max_tokens 4000",
        "/set temperature 2",
        "Tell me a long story",
        "/stats",
    ]
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


INTERRUPT_BEFORE_THE_FIRST_TOKEN = """
import os, signal
from cutaway.cli.main import main
from cutaway.engine.stream import Stream
from cutaway.tokenizer import Tokenizer

def interrupt_once(kind, name):
    function = getattr(kind, name)
    def interrupted(*arguments, **options):
        setattr(kind, name, function)
        os.kill(os.getpid(), signal.SIGINT)
        return function(*arguments, **options)
    setattr(kind, name, interrupted)

interrupt_once(Tokenizer, "encode_chat")
interrupt_once(Stream, "__next__")
main()
"""


def test_ctrl_c_before_the_first_token_keeps_the_chat(smollm2_path: Path, tmp_path: Path) -> None:
    """While the question becomes tokens, and while the first step is computed."""
    terminal = Terminal(tmp_path, [*COMMAND[:1], "-c", INTERRUPT_BEFORE_THE_FIRST_TOKEN])
    try:
        terminal.wait_for(">>> ")
        terminal.type("Hello\r")
        terminal.wait_for(" interrupted")
        terminal.wait_for(">>> ")
        terminal.type("Hello\r")
        terminal.wait_for(" stopped before the first token")
        terminal.wait_for(">>> ")
        terminal.type("Hello\r")
        terminal.wait_for(SUMMARY)
        terminal.wait_for(">>> ")
        terminal.type("/stats\r")
        assert "2 messages" in terminal.wait_for(">>> ")
        terminal.type("\x04")
        assert terminal.process.wait(SECONDS) == 0
    finally:
        terminal.end()


def test_many_interrupts_at_once_keep_the_chat(terminal: Terminal) -> None:
    """At the prompt, faster than it can be drawn: each moment of the loop is hit."""
    terminal.wait_for(">>> ")
    for _ in range(3000):
        os.kill(terminal.process.pid, signal.SIGINT)
        while select.select([terminal.master], [], [], 0)[0]:  # else it would wait for a reader
            os.read(terminal.master, 65536)
    terminal.throw_away("what came last")
    terminal.type("/stats\r")
    assert "0 messages" in terminal.wait_for(">>> ")


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "binary junk", "a link to itself"])
def test_a_history_that_is_none(smollm2_path: Path, tmp_path: Path, kind: str) -> None:
    history = tmp_path / "chat_history"
    {
        "a folder": history.mkdir,
        "a pipe": lambda: os.mkfifo(history),
        "binary junk": lambda: history.write_bytes(bytes(range(256)) * 50),
        "a link to itself": lambda: history.symlink_to(history),
    }[kind]()
    opened = Terminal(tmp_path)
    try:
        opened.wait_for(">>> ")
        opened.type("/stats\r")
        opened.wait_for("0 messages")
        opened.wait_for(">>> ")
        opened.type("\x04")
        assert opened.process.wait(SECONDS) == 0
    finally:
        opened.end()


def test_a_closed_standard_input_is_refused() -> None:
    command = subprocess.list2cmdline([*COMMAND, "chat", "smollm2"])
    result = subprocess.run(["sh", "-c", f"{command} <&-"], capture_output=True, text=True, env=environment())
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: standard input is closed; ")
