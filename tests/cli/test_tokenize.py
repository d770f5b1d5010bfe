"""``cutaway tokenize``: pieces and bytes for people and for programs, ids to text, and a quick start."""

import json
import os
import pty
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from command import COMMAND, assert_refused, cutaway, environment
from rich.cells import cell_len

from cutaway.cli.tokenize import _read_ids, tokenize
from cutaway.errors import InvalidRequestError
from cutaway.formats.gguf import open_gguf
from cutaway.tokenizer import Tokenizer, load_tokenizer
from support.patience import SECONDS

TEXT = "Hello 😀 world\n<|im_end|>\tx"


@pytest.fixture(scope="module")
def tokenizer(smollm2_path: Path) -> Tokenizer:
    with open_gguf(smollm2_path) as gguf:
        return load_tokenizer(gguf.metadata)


def on_a_terminal(*arguments: str | Path, **changes: str) -> str:
    """What a terminal gets from standard output."""
    ours, theirs = pty.openpty()
    env = environment(**{"TERM": "xterm", **changes})
    with subprocess.Popen([*COMMAND, *arguments], stdout=theirs, stderr=subprocess.DEVNULL, env=env) as process:
        os.close(theirs)
        shown = b""
        try:
            while some := os.read(ours, 65_536):
                shown += some
        except OSError:  # Linux says so when the other end is closed
            pass
    os.close(ours)
    assert process.returncode == 0
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("special", [False, True])
def test_a_line_for_each_token(tokenizer: Tokenizer, special: bool) -> None:
    result = cutaway("tokenize", "smollm2", TEXT, *["--special"] * special)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    ids = tokenizer.encode(TEXT, parse_special=special)
    assert [int(token_id) for token_id, _, _ in rows] == ids
    assert b"".join(bytes.fromhex(data) for _, _, data in rows).decode() == TEXT
    assert [piece for _, piece, _ in rows] == [tokenizer.piece(token_id) for token_id in ids]
    assert (2 in ids) == special
    assert result.stderr == f"{len(ids)} tokens, {len(TEXT)} characters\n"
    assert "\x1b" not in result.stdout + result.stderr


def test_every_place_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Hello world\n")
    expected = cutaway("tokenize", "smollm2", "Hello world").stdout
    assert expected.count("\n") == 2
    assert cutaway("tokenize", "smollm2", "-f", tmp_path / "text.txt").stdout == expected
    assert cutaway("tokenize", "smollm2", "-", given=b"Hello world\n").stdout == expected


def test_json(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXT, parse_special=True)
    result = cutaway("tokenize", "smollm2", TEXT, "--special", "--json")
    report = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert result.stderr == ""
    assert (report["model"], report["text"], report["ids"]) == ("smollm2", TEXT, ids)
    assert [token["id"] for token in report["tokens"]] == ids
    assert b"".join(bytes.fromhex(token["bytes"]) for token in report["tokens"]).decode() == TEXT
    assert [token["id"] for token in report["tokens"] if token["special"]] == [2]
    assert json.loads(cutaway("tokenize", "smollm2", "", "--json").stdout)["tokens"] == []


@pytest.mark.parametrize("listed", ["1,19556,2", "[1, 19556, 2]", "1 19556\t2", " 1,\n19556,2,"])
def test_how_ids_are_written(listed: str) -> None:
    assert _read_ids(listed) == [1, 19556, 2]


def test_ids_to_text() -> None:
    ids = "1,19556,10813,242,218"
    result = cutaway("tokenize", "smollm2", "--decode", ids)
    assert (result.stdout, result.stderr) == ("<|im_start|>Hello😀\n", "")
    report = json.loads(cutaway("tokenize", "smollm2", "--json", "--decode", ids).stdout)
    assert (report["ids"], report["text"]) == ([1, 19556, 10813, 242, 218], "<|im_start|>Hello😀")


def test_a_refusal_is_one_line(smollm2_path: Path) -> None:
    assert_refused(cutaway("tokenize", smollm2_path, "\x04"), 2, "the byte 0x04")


@pytest.mark.parametrize(
    ("arguments", "message", "field"),
    [
        ({"decode": "1,x"}, "--decode is '1,x'; it must be token ids", "decode"),
        ({"decode": "-1"}, "token id -1 is outside the vocabulary; ids are 0 to 49151", "ids"),
        ({"decode": "49152"}, "token id 49152 is outside", "ids"),
        ({"decode": "1", "text": "a"}, "--decode takes ids in place of a text", "decode"),
        ({"decode": "1", "file": Path("a")}, "--decode takes ids in place of a text", "decode"),
        ({"decode": "1", "special": True}, "--decode takes ids in place of a text", "decode"),
        ({"text": "a", "file": Path("a")}, "there are a prompt and --file", "prompt"),
        ({"file": Path("nosuch")}, "--file 'nosuch' can't be read", "file"),
    ],
)
def test_what_is_refused(smollm2_path: Path, arguments: dict[str, Any], message: str, field: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        tokenize(str(smollm2_path), **arguments)
    assert caught.value.field == field


def test_on_a_terminal_pieces_have_alternating_colours(tokenizer: Tokenizer, smollm2_path: Path) -> None:
    shown = on_a_terminal("tokenize", smollm2_path, TEXT, "--special")
    coloured, _, table = shown.partition("\n\n")
    ids = tokenizer.encode(TEXT, parse_special=True)
    pieces = re.findall(r"\x1b\[30;(\d+)m(.*?)\x1b\[0m", coloured)
    assert [piece for _, piece in pieces] == [tokenizer.piece(token_id) for token_id in ids]
    colours = [colour for colour, _ in pieces]
    assert all(one != other for one, other in pairwise(colours))
    assert colours[ids.index(2)] not in colours[: ids.index(2)]
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured).split("\n") == [
        "Hello <0xF0><0x9F><0x98><0x80> world\\n",
        "<|im_end|>\\tx",
    ]
    head, *rows = table.splitlines()
    assert head.split() == ["id", "piece", "bytes"]
    assert [int(row.split()[0]) for row in rows] == ids
    assert {row.index(f"  {tokenizer.token_bytes(i).hex(' ')}", 6) for row, i in zip(rows, ids, strict=True)} == {
        head.index("  bytes")
    }


def test_no_colours_where_none_are_wanted(smollm2_path: Path) -> None:
    for changes in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        shown = on_a_terminal("tokenize", smollm2_path, "Hello", **changes)
        assert shown.split() == ["id", "piece", "bytes", "19556", "Hello", "48", "65", "6c", "6c", "6f"]


def test_wide_characters_keep_the_columns(smollm2_path: Path) -> None:
    head, *rows = on_a_terminal("tokenize", smollm2_path, "a 中文", NO_COLOR="1").splitlines()
    data = re.compile(r"  [0-9a-f]{2}( [0-9a-f]{2})*$")
    places = {cell_len(data.sub("", row)) for row in rows}
    assert places == {head.index("  bytes")}
    assert any(cell_len(row) > len(row) for row in rows)


def test_a_terminal_does_not_obey_the_text(smollm2_path: Path) -> None:
    text = "a\x1b[2J\x07\r\u202eb"
    shown = on_a_terminal("tokenize", smollm2_path, text)
    assert not set("\x07\r\u202e") & set(shown)
    assert set(re.findall(r"\x1b\[\d*[A-Z]|\x1b\[[\d;]*m", shown)) <= {"\x1b[30;46m", "\x1b[30;43m", "\x1b[0m"}
    assert shown.count("\\x1b") == 2


def test_a_text_of_any_length(smollm2_path: Path) -> None:
    result = cutaway("tokenize", smollm2_path, given=b"one two\n" * 50_000)
    assert result.stdout.count("\n") == 3 * 50_000 - 1  # no line end at the end
    reading, writing = os.pipe()
    os.close(reading)
    try:
        gone = cutaway("tokenize", smollm2_path, given=b"one two\n" * 50_000, stdout=writing)
    finally:
        os.close(writing)
    assert (gone.returncode, gone.stderr) == (1, "")


def test_neither_compiler_nor_engine_is_loaded(smollm2_path: Path) -> None:
    code = (
        "import sys\nfrom cutaway.cli.main import main\nslow = 'numba', 'llvmlite', 'cutaway.engine', 'cutaway.model'\n"
        f"sys.argv[1:] = ['tokenize', {str(smollm2_path)!r}, 'hi']\n"
        "try:\n    main()\nexcept SystemExit:\n"
        "    print([name for name in slow if name in sys.modules])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=SECONDS
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_a_folder_that_has_nothing_but_a_tokenizer(tmp_path: Path) -> None:
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
    content = {"version": "1.0", "added_tokens": [], "pre_tokenizer": level, "decoder": level, "model": model}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    expected = cutaway("tokenize", tmp_path / "tokenizer.json", "abba")
    assert [line.split("\t")[0] for line in expected.stdout.splitlines()] == ["0", "1", "1", "0"], expected.stderr
    assert cutaway("tokenize", tmp_path, "abba").stdout == expected.stdout
    (tmp_path / "x.gguf").touch()
    assert_refused(cutaway("tokenize", tmp_path, "abba"), 3, "x.gguf")


def test_a_tokenizer_that_is_not_there(tmp_path: Path) -> None:
    assert_refused(cutaway("tokenize", "nosuch.json", "a", cwd=tmp_path), 3, "no such file: 'nosuch.json'")
