"""``cutaway train-tokenizer``: the file it writes gives the same ids in the `tokenizers` package and in our reader;
what it says; and what it leaves behind when it is stopped.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cutaway.cli.main import app
from cutaway.errors import CutawayError, InvalidRequestError
from cutaway.tokenizer import Tokenizer
from cutaway.tokenizer.huggingface.folder import load_tokenizer_file

TEXT = Path(__file__).parent.parent.parent / "README.md"


def train(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["train-tokenizer", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


KINDS = {
    "gpt-2": ["--pre", "gpt-2"],
    "llama-bpe": ["--pre", "llama-bpe", "--special", "<s>", "--special", "</s>"],
    "deepseek-coder": ["--pre", "deepseek-coder", "--min-count", "5"],
    "gpt-4o": ["--pre", "gpt-4o"],
    "unigram": ["--kind", "unigram", "--special", "<s>"],
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Tokenizer, tokenizers.Tokenizer]]:
    folder = tmp_path_factory.mktemp("trained")
    pairs = {}
    for name, options in KINDS.items():
        out = folder / f"{name}.json"
        train(str(TEXT), "--vocab-size", "700", "--out", str(out), *options)
        pairs[name] = (load_tokenizer_file(out), tokenizers.Tokenizer.from_file(str(out)))
    return pairs


some_text = st.lists(
    st.one_of(
        st.sampled_from(
            ["The forward", " is ", "run", "\n\n", "  ", "'s", "<s>", "</s>", "42", "é", "🦙", "\r\n", "<0x", "the"]
        ),
        st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=12),
    ),
    max_size=10,
).map("".join)


@settings(max_examples=60, deadline=None)
@given(some_text)
@pytest.mark.parametrize("name", KINDS)
def test_same_ids_as_the_tokenizers_package(
    trained: dict[str, tuple[Tokenizer, tokenizers.Tokenizer]], name: str, text: str
) -> None:
    ours, theirs = trained[name]
    ids = ours.encode(text, parse_special=True)
    assert ids == theirs.encode(text).ids
    assert ours.decode(ids, skip_special=False) == (text.replace("▁", " ") if name == "unigram" else text)
    assert theirs.decode(ids, skip_special_tokens=False) == ours.decode(ids, skip_special=False)


def test_the_size_is_the_one_wanted(trained: dict[str, tuple[Tokenizer, tokenizers.Tokenizer]]) -> None:
    sizes = {name: (ours.vocab_size, theirs.get_vocab_size()) for name, (ours, theirs) in trained.items()}
    assert all(size == (700, 700) for name, size in sizes.items() if name != "deepseek-coder"), sizes
    assert sizes["deepseek-coder"][0] < 700  # no pair stands five times any more


def test_the_classic_example(tmp_path: Path) -> None:
    corpus, out = tmp_path / "corpus.txt", tmp_path / "tokenizer.json"
    corpus.write_text("aaabdaaabac")
    said = train(str(corpus), "--vocab-size", "259", "--explain", "--out", str(out))
    assert load_tokenizer_file(out).encode("aaabdaaabac") == [258, 100, 258, 97, 99]
    assert tokenizers.Tokenizer.from_file(str(out)).encode("aaabdaaabac").ids == [258, 100, 258, 97, 99]
    assert said.splitlines()[:4] == [
        "11 bytes: 1 words, 1 different ones",
        "pairs before merge 1: 'a' 'a' 4 · 'a' 'b' 2 · 'a' 'c' 1 · 'b' 'a' 1 · 'b' 'd' 1 · 'd' 'a' 1",
        "merge 1: 'a' + 'a' → 'aa' = 256, 4 times",
        "pairs after merge 1: 'a' 'b' 2 · 'aa' 'a' 2 · 'a' 'c' 1 · 'b' 'a' 1 · 'b' 'd' 1 · 'd' 'aa' 1",
    ]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_same_file_every_time(tmp_path: Path, kind: str) -> None:
    written = []
    for processes in ("1", "3"):
        out = tmp_path / processes
        train(str(TEXT), str(TEXT), "--vocab-size", "500", "--kind", kind, "--processes", processes, "--out", str(out))
        written.append(out.read_bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vocab-size", "255"], "--vocab-size is 255; it must be 256"),
        (["--vocab-size", "256", "--special", "x"], "it must be 257"),
        (["--vocab-size", "300", "--kind", "unigram"], "for single characters"),
        (["--vocab-size", "300", "--kind", "wordpiece"], "--kind is 'wordpiece'"),
        (["--vocab-size", "300", "--pre", "none"], "known pre-tokenizers"),
        (["--vocab-size", "300", "--min-count", "0"], "--min-count is 0"),
        (["--vocab-size", "300", "--processes", "0"], "--processes is 0"),
        (["--vocab-size", "300", "--special", "a"], "'a' is given as a control token"),
        (["--vocab-size", "300", "--special", "<x>", "--special", "<x>"], "given twice"),
        (["--vocab-size", "900", "--kind", "unigram", "--explain"], "--explain shows counts of pairs"),
        (["--vocab-size", "300", "--out", "."], "is a folder"),
        (["--vocab-size", "300", "--out", "/none/x.json"], "can't be written"),
    ],
)
def test_what_it_refuses(arguments: list[str], message: str) -> None:
    with pytest.raises(CutawayError, match=message):
        train(str(TEXT), *arguments)


def test_a_missing_corpus_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"none\.txt can't be read"):
        train(str(tmp_path / "none.txt"), "--vocab-size", "300")


@pytest.mark.parametrize("moment", ["counting", "merging"])
def test_an_interrupt_leaves_nothing(tmp_path: Path, moment: str) -> None:
    """And what was there stays."""
    corpus, out = tmp_path / "corpus.txt", tmp_path / "tokenizer.json"
    corpus.write_text("".join(f"w{n * 7919 % 100_003:x} and {n:x}\n" for n in range(200_000)))
    out.write_text("{}")
    command = [sys.executable, "-c", "from cutaway.cli.main import main; main()", "train-tokenizer", str(corpus)]
    options = ["--vocab-size", "30000", "--processes", "2", "--out", str(out)]
    child = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if moment == "merging":
        assert child.stdout is not None
        assert "different ones" in child.stdout.readline()
    else:
        workers = Path(f"/proc/{child.pid}/task/{child.pid}/children")
        while child.poll() is None and not workers.read_text():
            time.sleep(0.01)
    os.kill(child.pid, signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130, errors
    assert "Traceback" not in errors
    assert out.read_text() == "{}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "tokenizer.json"]


def test_the_file_is_json_with_merges_as_text(trained: dict[str, tuple[Tokenizer, tokenizers.Tokenizer]]) -> None:
    """As older versions of the package read them, too."""
    merges = json.loads(trained["gpt-2"][1].to_str())["model"]["merges"]
    assert len(merges) == 700 - 256
