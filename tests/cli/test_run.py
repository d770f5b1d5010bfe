"""``cutaway run``: where the prompt comes from, what is printed where, seeds, JSON; output that nobody takes."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from command import COMMAND, assert_refused, cutaway, environment

from support.patience import SECONDS

QUESTION = "What is gravity?"
SUMMARY = re.compile(
    r"\d+ prompt tokens in \d+\.\d\d s, \d+ tok/s · \d+ tokens at \d+ tok/s · "
    r"(end of answer|length limit) · temperature 0 · seed -?\d+\n"
)
GREEDY = ("--temperature", "0", "--max-tokens", "12")


@pytest.fixture(scope="module", autouse=True)
def _warm(smollm2_path: Path) -> None:
    """Everything is compiled, so that standard error has nothing but the summary."""
    assert cutaway("run", "smollm2", "hi", "--max-tokens", "2").returncode == 0


@pytest.fixture(scope="module")
def answer() -> str:
    return cutaway("run", "smollm2", QUESTION, *GREEDY).stdout


def test_the_answer_is_the_output_and_the_rest_is_not() -> None:
    result = cutaway("run", "smollm2", QUESTION, "--temperature", "0", "--max-tokens", "40")
    assert result.returncode == 0
    assert result.stdout.startswith("Gravity is")
    assert result.stdout.endswith("\n")
    assert SUMMARY.fullmatch(result.stderr), result.stderr
    assert "\x1b" not in result.stdout + result.stderr


def test_every_place_of_the_prompt_gives_the_same_answer(answer: str, tmp_path: Path, smollm2_path: Path) -> None:
    assert len(answer) > 10
    (tmp_path / "prompt.txt").write_text(QUESTION + "\n")
    assert cutaway("run", "smollm2", *GREEDY, given=f"{QUESTION}\n".encode()).stdout == answer
    options = ("-f", tmp_path / "prompt.txt", "--threads", "1", "--context", "100")
    assert cutaway("run", smollm2_path, *GREEDY, *options).stdout == answer


def test_raw_completes_the_text_itself() -> None:
    result = cutaway("run", "smollm2", "--raw", "The capital of France is", "--temperature", "0", "--max-tokens", "3")
    assert result.stdout == " Paris.\n\n"
    assert result.stderr.startswith("5 prompt tokens ")


@pytest.mark.parametrize("command", ["run", "walk", "chat"])
def test_a_chat_template_in_place_of_the_model_s(command: str, tmp_path: Path) -> None:
    """A file that only prints the text is as good as --raw; a built-in one for other tokens is refused."""
    (tmp_path / "plain.jinja").write_text("{{ messages[0].content }}")
    options = ["--temperature", "0", "--max-tokens", "3", "--chat-template"]
    text, given = "The capital of France is", None
    if command == "chat":
        arguments, given = ["chat", "smollm2"], text.encode()
    else:
        arguments = [command, "smollm2", text]
    result = cutaway(*arguments, *options, "plain.jinja", given=given, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Paris" in result.stdout
    assert_refused(cutaway(*arguments, *options, "gemma", given=given), 2, "'gemma' writes <start_of_turn>", "fit the")


def test_json() -> None:
    options = ("--seed", "-3", "--max-tokens", "9", "--top-k", "40", "--threads", "2", "--context", "128", "--json")
    result = cutaway("run", "smollm2", "--kv-dtype", "int8", "Repeat: 你好 😀", *options)
    assert result.returncode == 0
    assert all(line.startswith("compil") for line in result.stderr.splitlines()), "kernels of int8, at their first use"
    assert result.stdout.count("\n") == 1
    report = json.loads(result.stdout)
    settings = {"seed": -3, "threads": 2, "context": 128, "model": "smollm2", "kv": "paged", "chat_template": None}
    settings["kv_dtype"] = "int8"
    assert {name: report[name] for name in settings} == settings
    assert 0 < report["kv_used_bytes"] <= report["kv_reserved_bytes"]
    assert report["kv_used_bytes"] % (2 * 30 * 3 * (64 + 4)) == 0
    parameters = {"seed": -3, "max_tokens": 9, "top_k": 40, "temperature": 0.2, "top_p": 0.9, "min_p": 0.0}
    assert {name: report["parameters"][name] for name in parameters} == parameters
    assert report["generated_tokens"] == len(report["token_ids"]) <= 9
    assert report["prompt_tokens"] == len(report["prompt_token_ids"])
    assert report["finish_reason"] in ("stop", "length")
    assert isinstance(report["text"], str)
    assert report["prefill_seconds"] > 0


def test_what_the_authors_advise_is_in_effect_unless_something_is_given(smollm2_path: Path) -> None:
    """Of a file by its path nothing is known, and what suits a small model holds. It is said behind the answer."""
    for model, given, told in (
        ("smollm2", ("--repetition-penalty", "1.1"), "temperature 0.2, top-p 0.9, repetition-penalty 1.1 · "),
        (smollm2_path, ("--top-k", "5"), "temperature 0.7, top-k 5, top-p 0.9 · "),
    ):
        result = cutaway("run", model, "hi", "--max-tokens", "2", *given)
        assert f" · {told}" in result.stderr


def test_the_seed_shown_gives_the_same_answer_again() -> None:
    options = ("--temperature", "1.2", "--max-tokens", "15")
    report = json.loads(cutaway("run", "smollm2", "Tell me a story.", *options, "--json").stdout)
    assert type(report["seed"]) is int
    assert report["parameters"]["seed"] == report["seed"], "the one in effect, though none was given"
    again = cutaway("run", "smollm2", "Tell me a story.", *options, "--seed", str(report["seed"]))
    assert again.stdout == report["text"] + "\n"
    assert again.stderr.split()[-1] == str(report["seed"])


def test_a_prompt_longer_than_the_context() -> None:
    result = cutaway("run", "smollm2", "one two three four five six seven eight nine ten", "--context", "32")
    assert_refused(result, 5, " tokens; the context holds 32, and one must be left", "Shorten the prompt")
    result = cutaway("run", "smollm2", "hi", "--context", "9000")
    assert_refused(result, 2, "the context (max_model_len, --context) is 9000", "to 8192")


def test_an_encoding_that_lacks_the_answer_s_characters() -> None:
    env = environment(PYTHONIOENCODING="ascii")
    result = cutaway("run", "smollm2", "--raw", "你好，我是一", *GREEDY, env=env)
    assert result.returncode == 0
    assert "Traceback" not in result.stderr
    assert re.search(r"\\u[0-9a-f]{4}", result.stdout)


# -- output that nobody takes


@pytest.mark.parametrize("arguments", [["run", "smollm2", QUESTION, "--max-tokens", "300"], ["pull"], ["--help"]])
def test_a_reader_that_has_gone(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = cutaway(*arguments, stdout=writing)
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (1, "")


def test_a_reader_that_goes_after_a_while() -> None:
    """As ``cutaway run … | head -c 5``."""
    process = subprocess.Popen(
        [*COMMAND, "run", "smollm2", "Tell me a long story.", "--max-tokens", "2000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert len(process.stdout.read(5)) == 5
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(SECONDS) == 1


@pytest.mark.parametrize("arguments", [["run", "smollm2", QUESTION, *GREEDY], ["pull"]])
def test_a_full_disk(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        result = cutaway(*arguments, stdout=full)
    assert_refused(result, 1, "standard output can't be written (No space left on device)")


@pytest.mark.parametrize("arguments", ["run smollm2 hi", "--version"])
def test_a_closed_standard_output(arguments: str) -> None:
    command = f'"$0" -m cutaway {arguments} >&-'
    result = subprocess.run(
        ["sh", "-c", command, COMMAND[0]], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment()
    )
    assert_refused(result, 1, "standard output is closed")
