"""``cutaway train-tokenizer``: the file it writes gives the same ids in the `tokenizers` package and in our reader;
what it says; and what it leaves behind when it is stopped.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
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
from cutaway.tokenizer.training.export import write_json
from cutaway.tokenizer.training.standard_input import spooled
from support.patience import SECONDS

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
            ["The forward", " is ", "run", "\n\n", "  ", "'s", "<s>", "</s>", "42", "é", "🦙", "\r\n", "<0x41>", "the"]
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
    assert said.splitlines()[:5] == [
        "11 bytes: 1 words, 1 different ones",
        "pairs before merge 1: 'a'+'a': 4 · 'a'+'b': 2 · 'a'+'c': 1 · 'b'+'a': 1 · 'b'+'d': 1 · 'd'+'a': 1",
        "merge 1: 'a' + 'a' → 'aa' = 256, 4 times",
        "pairs after merge 1: 'a'+'b': 2 · 'aa'+'a': 2 (new) · 'a'+'c': 1 · 'b'+'a': 1 · 'b'+'d': 1 · 'd'+'aa': 1 (new)"
        "; also changed: 'd'+'a': 0 (was 1)",
        "merge 2: 'a' + 'b' → 'ab' = 257, 2 times",
    ]


def test_each_state_is_explained_once_with_what_changed(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the then that at hat " * 1_000)
    options = ["--pre", "gpt-2", "--vocab-size", "262", "--explain", "--out", str(tmp_path / "x.json")]
    lines = train(str(corpus), *options).splitlines()[1:]
    states = [line for line in lines if line.startswith("pairs ")]
    titles = [line.split(":")[0] for line in states]
    assert titles == ["pairs before merge 1", *(f"pairs after merge {n}" for n in (1, 2, 3))]
    assert len(set(states)) == 4
    assert "'h'+'e': 1,999" not in states[0]
    assert "(" not in states[0]
    counts = [
        {
            pair: (int(n.replace(",", "")), was)
            for pair, n, was in re.findall(r"('[^']+'\+'[^']+'): ([\d,]+)( \(.*?\))?", each)
        }
        for each in states
    ]
    for before, after in pairwise(counts):
        for pair, (count, mark) in after.items():
            if pair in before:
                was = before[pair][0]
                assert mark == ("" if was == count else f" (was {was:,})"), pair
    assert any(mark == " (new)" for _, mark in counts[1].values())


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
        (["--vocab-size", "-5"], "--vocab-size is -5; it must be from 256 "),
        (["--vocab-size", "255"], r"--vocab-size is 255; it must be from 256 \(256 bytes\) to 2,097,152\.$"),
        (["--vocab-size", "2097153"], "--vocab-size is 2,097,153; it must be from 256 .* to 2,097,152"),
        (["--vocab-size", "256", "--special", "<x>"], r"from 257 \(256 bytes \+ 1 control token\) to"),
        (
            ["--vocab-size", "0", "--special", "<x>", "--special", "<y>"],
            r"from 258 \(256 bytes \+ 2 control tokens\) to",
        ),
        (
            ["--vocab-size", "300", "--kind", "unigram"],
            "from 352 .*<unk>.*95 characters of printable ASCII.*always kept",
        ),
        (["--vocab-size", "352", "--kind", "unigram", "--special", "<s>"], "from 353 .*1 control token.*always kept"),
        (["--vocab-size", "352", "--kind", "unigram"], r"from 3[5-9]\d .* \d+ other characters of the corpus"),
        (["--vocab-size", "300", "--kind", "wordpiece"], "--kind is 'wordpiece'"),
        (["--vocab-size", "300", "--pre", "none"], "^--pre is 'none'; known: .*gpt-2, .*qwen2"),
        (["--vocab-size", "300", "--pre", ""], "^--pre is ''; known: "),
        (["--vocab-size", "300", "--min-count", "0"], "--min-count is 0"),
        (["--vocab-size", "300", "--processes", "0"], "--processes is 0"),
        (["--vocab-size", "300", "--processes", "2000"], "--processes is 2,000; it must be from 1 to 1,024"),
        (["--vocab-size", "900", "--kind", "unigram", "--special", "▁"], "'▁' is given as a control token"),
        (["--vocab-size", "900", "--kind", "unigram", "--special", "\n"], "is given as a control token"),
        (["--vocab-size", "900", "--kind", "unigram", "--special", "<0x41>"], "'<0x41>' is given as a control token"),
        (["--vocab-size", "900", "--kind", "unigram", "--special", "▁the"], "'▁the' .*the vocabulary learnt it"),
        (["--vocab-size", "300", "--special", "a"], "'a' is given as a control token"),
        (["--vocab-size", "300", "--special", "<x>", "--special", "<x>"], "given twice"),
        (["--vocab-size", "300", "--special", ""], "'' is empty"),
        (["--vocab-size", "900", "--kind", "unigram", "--special", "<unk>"], "'<unk>' is given twice, or part of"),
        (["--vocab-size", "900", "--kind", "unigram", "--explain"], "--explain shows counts of pairs"),
        (["--vocab-size", "900", "--kind", "unigram", "--pre", "gpt-2"], "--pre is 'gpt-2'; unigram cuts"),
        (["--vocab-size", "900", "--kind", "unigram", "--min-count", "2"], "--min-count is 2; it is about pairs"),
        (["--vocab-size", "300", "--out", "."], "is a folder"),
        (["--vocab-size", "300", "--out", "/none/x.json"], "there is no folder /none"),
        (["--vocab-size", "300", "--out", "x" * 300], "can't be written"),
        (["--vocab-size", "300", "--special", "\udcff"], "lone surrogate"),
        (["--vocab-size", "300", "--special", "x" * 257], "at most 256"),
    ],
)
def test_what_it_refuses(arguments: list[str], message: str) -> None:
    with pytest.raises(CutawayError, match=message):
        train(str(TEXT), *arguments)


@pytest.mark.parametrize(
    "options",
    [
        ["--special", "<x>", "--special", "<x>"],
        ["--out", "/none/x.json"],
        ["--pre", "foo"],
        ["--special", "t"],
        ["--special", "Ġ"],
        ["--kind", "unigram"],
        ["--kind", "unigram", "--vocab-size", "900", "--special", "t"],
        ["--kind", "unigram", "--vocab-size", "900", "--special", "<0x41>"],
    ],
)
def test_what_can_be_known_before_training_is_refused_before(options: list[str]) -> None:
    """With a corpus that is not there, whose error would come first."""
    with pytest.raises(CutawayError) as error:
        train("/none/corpus.txt", "--vocab-size", "300", *options)
    assert "corpus" not in str(error.value)
    assert error.value.exit_code == 2


def test_a_control_token_is_refused_by_the_merge_that_makes_it(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("xyz xyz xyz abc abc " * 9)
    arguments = ["train-tokenizer", str(corpus), "--vocab-size", "900", "--special", "xyz", "--min-count", "1"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "x.json")])
    assert "'xyz' is given as a control token" in str(result.exception)
    assert result.stdout.splitlines()[-1].startswith("merge 1: 'x' + 'y'")


@pytest.mark.parametrize("special", [[], ["--special", "<s>", "--special", "</s>"]])
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_smallest_size_is_named_and_suffices(tmp_path: Path, kind: str, special: list[str]) -> None:
    corpus, out = tmp_path / "corpus.txt", tmp_path / "x.json"
    corpus.write_text("人之初\n性本善\n" * 5)
    options = [str(corpus), "--kind", kind, "--out", str(out), *special]
    size = 1
    while True:  # the corpus's own characters are known later than the rest
        try:
            train(*options, "--vocab-size", str(size))
            break
        except InvalidRequestError as error:
            named = int(re.findall(r"must be from ([\d,]+) ", str(error))[0].replace(",", ""))
            assert named > size
            size = named
    assert size == (256 if kind == "bpe" else 257 + 95 + 7) + len(special) // 2
    with pytest.raises(InvalidRequestError):
        train(*options, "--vocab-size", str(size - 1))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("special", [[], ["--special", "<s>"]])
def test_the_end_says_how_the_size_comes_about_and_what_a_token_holds(
    tmp_path: Path, kind: str, special: list[str]
) -> None:
    out = tmp_path / "x.json"
    options = ["--kind", kind, "--vocab-size", "600", "--out", str(out), *special]
    result = CliRunner().invoke(app, ["train-tokenizer", str(TEXT), *options])
    control = len(special) // 2 + (kind == "unigram")
    said = result.stderr.splitlines()[-1]
    pieces = 600 - 256 - control
    plural = "" if control == 1 else "s"
    assert f"600 tokens ({pieces} pieces + 256 bytes + {control} control token{plural}) written to {out}; " in said
    encoded = tokenizers.Tokenizer.from_file(str(out)).encode(TEXT.read_text("utf-8")).ids
    assert said.endswith(f"; {TEXT.stat().st_size / len(encoded):.2f} bytes a token on the corpus")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_pipe_gets_a_line_for_each_stage(tmp_path: Path, kind: str) -> None:
    options = ["--kind", kind, "--vocab-size", "600", "--out", str(tmp_path / "x.json")]
    lines = CliRunner().invoke(app, ["train-tokenizer", str(TEXT), *options]).stderr.splitlines()
    stages = [re.sub(r"[\d,]+", "N", line) for line in lines[:-1]]
    if kind == "bpe":
        assert stages == ["counting words …", "merging pairs …", "measuring …"]
    else:
        assert stages[:3] == ["counting words …", "finding substrings …", "weighing N pieces …"]
        assert len(set(lines)) == len(lines)


def test_a_missing_corpus_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"none\.txt can't be read"):
        train(str(tmp_path / "none.txt"), "--vocab-size", "300")


def test_a_folder_is_refused_with_what_to_give(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text")
    with pytest.raises(
        InvalidRequestError, match=rf"{tmp_path} is a folder; give the files in it, as {tmp_path}/\*\.md"
    ):
        train(str(tmp_path), "--vocab-size", "300")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_dash_is_standard_input(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    other, piped, filed = (tmp_path / name for name in ("other.txt", "piped.json", "filed.json"))
    other.write_text("besides\n" * 9)
    options = ["--vocab-size", "600", "--kind", kind, "--out"]
    data = TEXT.read_bytes()
    result = CliRunner().invoke(app, ["train-tokenizer", str(other), "-", *options, str(piped)], input=data)
    assert result.exit_code == 0, result.output
    train(str(other), str(TEXT), *options, str(filed))
    assert piped.read_bytes() == filed.read_bytes()
    for corpus, piped_text, message in (
        (["-", "-"], b"text", "given twice"),
        (["-"], b"abc\xff", "standard-input is not UTF-8 text: byte 3"),
        (["-"], b"", "the corpus is empty"),
    ):
        result = CliRunner().invoke(app, ["train-tokenizer", *corpus, *options, str(piped)], input=piped_text)
        assert isinstance(result.exception, InvalidRequestError)
        assert message in str(result.exception)
    assert not [*temporary.iterdir()]


def test_closed_standard_input_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="standard input is closed"), spooled([Path("-")], None):
        pass
    with spooled([Path("x")], None) as paths:  # where it isn't asked for, it doesn't matter
        assert paths == [Path("x")]


def test_nothing_but_a_file_is_replaced(tmp_path: Path) -> None:
    """A device that gave way to a file would be missed by all programs of the machine."""
    corpus, fifo, device, target, link = (tmp_path / name for name in ("corpus", "fifo", "device", "target", "link"))
    corpus.write_text("hello world\n" * 9)
    os.mkfifo(fifo)
    device.symlink_to("/dev/null")
    for out in (fifo, device):
        with pytest.raises(InvalidRequestError, match="is a pipe or device"):
            train(str(corpus), "--vocab-size", "260", "--out", str(out))
        with pytest.raises(InvalidRequestError, match="it is no ordinary file"):
            write_json({}, out)
    assert fifo.is_fifo()
    assert Path("/dev/null").is_char_device()
    link.symlink_to(target)
    train(str(corpus), "--vocab-size", "260", "--out", str(link))
    assert link.is_symlink()
    load_tokenizer_file(target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "device", "fifo", "link", "target"]


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
    _, errors = child.communicate(timeout=SECONDS)
    assert child.returncode == 130, errors
    assert "Traceback" not in errors
    assert out.read_text() == "{}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "tokenizer.json"]


def test_the_file_is_json_with_merges_as_text(trained: dict[str, tuple[Tokenizer, tokenizers.Tokenizer]]) -> None:
    """As older versions of the package read them, too."""
    merges = json.loads(trained["gpt-2"][1].to_str())["model"]["merges"]
    assert len(merges) == 700 - 256
