"""What is changed in a record is found: by the chain, and by the replay where somebody has made the chain anew."""

import hashlib
import itertools
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway import LLM, Record, SamplingParams
from cutaway.audit.record.digests import model_digests
from cutaway.audit.record.levels import OPERATIONS, TENSORS
from cutaway.audit.record.lines import BrokenLineError
from cutaway.audit.record.operations import OpenStep, Operations
from cutaway.audit.record.read_receipts import read_receipts
from cutaway.audit.record.read_record import read_record
from cutaway.audit.record.recorder import Recorder
from cutaway.audit.record.replay import CollectedLines, Difference, replay
from cutaway.audit.record.tensor_compare import NUMBERS
from cutaway.audit.record.tensor_files import folder_of
from cutaway.audit.record.verify import verify
from cutaway.audit.safetensors_head import safetensors_head
from cutaway.errors import CutawayError, InvalidRequestError, ModelFileError
from cutaway.formats.gguf import open_gguf
from cutaway.formats.safetensors import open_safetensors
from cutaway.hub import whole_file
from support.long import LONG
from support.records import Content, contents, write_chained
from support.tiny_llama import write_tiny_llama

PROMPT = [504, 3575, 282, 4649, 314]  # "The capital of France is"
ASKED = SamplingParams(temperature=0.8, seed=5, n=2, max_tokens=3, logprobs=2, prompt_logprobs=1, min_p=0.01)
FORMED = SamplingParams(temperature=0.8, seed=6, max_tokens=8, structured_outputs={"choice": ["Paris", "London"]})


RUN_ALONE = ("request", "time", "steps", "cached", "reason")
"""What docs/record.md says a replay can't find again."""


@pytest.fixture(scope="module")
def record(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two requests, at level operations; one has all kinds of lines."""
    path = tmp_path_factory.mktemp("record") / "answers.jsonl"
    with LLM(smollm2_path, threads=2, max_model_len=64, record=Record(path, OPERATIONS)) as llm:
        llm.generate([PROMPT, PROMPT], [ASKED, FORMED], use_tqdm=False)
    return path


def is_caught(path: Path) -> bool:
    """Whether reading alone finds that something is wrong, or that a line is none."""
    try:
        content = read_record(path)
    except InvalidRequestError:
        return True
    return content.changed is not None or content.torn != []


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in a line its numbers, texts and truths are."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from leaves(each, (*path, name))
    elif isinstance(value, list) and value:
        for place, each in enumerate(value):
            yield from leaves(each, (*path, place))
    else:
        yield path


def other(value: Any) -> Any:
    """Something else of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value + 0.5
    if isinstance(value, str):
        return ("1" if value[:1] == "0" else "0") + value[1:]
    return 1 if value is None else None


def changed(line: Content, path: tuple[Any, ...], change: Callable[[Any], Any] = other) -> Content:
    """The line with another value there."""
    copy: Content = json.loads(json.dumps(line))
    place: Any = copy
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = change(place[path[-1]])
    return copy


def test_the_record_itself_is_right(record: Path) -> None:
    content = read_record(record)
    assert content.changed is None
    assert content.torn == []
    assert {line["kind"] for line in contents(record)} == {"header", "begin", "scores", "token", "end", "receipt"}


def test_each_field_of_each_line_is_bound(record: Path, tmp_path: Path) -> None:
    """Changed, taken away, or the whole line taken away."""
    lines = record.read_bytes().splitlines(keepends=True)
    path, tried = tmp_path / "changed.jsonl", 0
    for number, raw in enumerate(lines):
        line = json.loads(raw)
        variants = [changed(line, place) for place in leaves(line)]
        variants += [{name: value for name, value in line.items() if name != gone} for gone in line]
        for variant in variants:
            text = json.dumps(variant, separators=(",", ":")).encode() + b"\n"
            path.write_bytes(b"".join([*lines[:number], text, *lines[number + 1 :]]))
            assert is_caught(path), (number, variant)
            tried += 1
        path.write_bytes(b"".join(lines[:number] + lines[number + 1 :]))
        if number < len(lines) - 1:  # that the last line was never there can't be seen
            assert is_caught(path), number
    assert tried > 300


def test_each_digit_is_bound(record: Path, tmp_path: Path) -> None:
    raw, path = record.read_bytes(), tmp_path / "changed.jsonl"
    digits = [place for place, each in enumerate(raw) if 0x30 <= each <= 0x39]
    tried = digits[:: max(1, len(digits) // 400)]
    assert len(tried) >= 400
    for place in tried:
        digit = raw[place] - 0x30
        path.write_bytes(raw[:place] + bytes([0x30 + (digit + 1) % 10]) + raw[place + 1 :])
        assert is_caught(path), raw[place - 40 : place + 40]


def test_lines_may_not_change_places(record: Path, tmp_path: Path) -> None:
    lines = record.read_bytes().splitlines(keepends=True)
    for one, following in itertools.pairwise(lines):
        if json.loads(one).get("request") == json.loads(following).get("request"):
            place = lines.index(one)
            path = tmp_path / "changed.jsonl"
            path.write_bytes(b"".join([*lines[:place], following, one, *lines[place + 2 :]]))
            assert is_caught(path)


@pytest.fixture(scope="module")
def replayer(smollm2_path: Path) -> Iterator[Callable[[Path], list[Difference | None]]]:
    """Replays each request of a record by one engine."""
    collected = CollectedLines()
    recorder = Recorder(collected, OPERATIONS)
    with LLM(smollm2_path, threads=2, max_model_len=64, enable_prefix_caching=False, record=recorder) as llm:
        operations = Operations(llm.runner.config)
        assert operations.order

        def run(path: Path) -> list[Difference | None]:
            content = read_record(path)
            assert content.changed is None
            requests = content.sessions[0].requests
            return [replay(llm, collected, each.read(), lambda recorded, found: None) for each in requests]

        yield run


def test_the_replay_finds_what_was_recorded(
    record: Path, tmp_path: Path, replayer: Callable[[Path], list[Difference | None]]
) -> None:
    assert replayer(record) == [None, None]
    assert replayer(write_chained(tmp_path / "same.jsonl", contents(record))) == [None, None]


def test_a_chain_made_anew_does_not_help(
    record: Path, tmp_path: Path, replayer: Callable[[Path], list[Difference | None]]
) -> None:
    """Every value that a replay can find again, in one line of each kind."""
    lines = contents(record)
    kinds = {"scores": 0, "token": -1, "end": 0}
    tried = 0
    for kind, which in kinds.items():
        number = [place for place, line in enumerate(lines) if line["kind"] == kind and line["request"] == "0"][which]
        for place in list(leaves(lines[number]))[:: 3 if kind == "scores" and not LONG else 1]:
            if place[0] in (*RUN_ALONE, "kind"):
                continue
            variant = changed(lines[number], place)
            path = write_chained(tmp_path / "changed.jsonl", [*lines[:number], variant, *lines[number + 1 :]])
            try:
                found = replayer(path)
            except BrokenLineError:  # a token that is not the next one
                assert place[0] in ("choice", "token")
            else:
                assert found[0] is not None, (kind, place)
            tried += 1
    assert tried > 15


ASKED_OTHERWISE: dict[tuple[Any, ...], Any] = {
    ("prompt_ids", 2): 283,
    ("params", "seed"): 6,
    ("params", "temperature"): 1.7,
    ("params", "n"): 1,
    ("params", "max_tokens"): 2,
    ("params", "logprobs"): 1,
    ("params", "prompt_logprobs"): None,
    ("params", "logit_bias"): {"28": 50},
    ("params", "allowed_token_ids"): [28],
    ("params", "min_p"): 0.9,
    ("max_new_tokens",): 4,
    ("stop_ids", 0): 1,
    ("pooling",): "last",
}
"""What would have given another answer to the first request."""


@pytest.mark.parametrize("place", ASKED_OTHERWISE, ids=str)
def test_another_question_has_another_answer(
    record: Path, tmp_path: Path, replayer: Callable[[Path], list[Difference | None]], place: tuple[Any, ...]
) -> None:
    lines = contents(record)
    number = next(n for n, line in enumerate(lines) if line["kind"] == "begin" and line["request"] == "0")
    variant = changed(lines[number], place, lambda _: ASKED_OTHERWISE[place])
    path = write_chained(tmp_path / "changed.jsonl", [*lines[:number], variant, *lines[number + 1 :]])
    assert replayer(path)[0] is not None


STRANGE = (None, [], {}, "x", -1, 2**70, 1.5, True, [[]], {"x": [1]})


def test_strange_values_are_refused_or_differ(
    record: Path, tmp_path: Path, replayer: Callable[[Path], list[Difference | None]]
) -> None:
    """Of another kind than is expected, in a chain made anew: an error that says so, and never another one."""
    lines, tried = contents(record), 0
    for kind in ("begin", "scores", "token", "end", "receipt"):
        number = next(n for n, line in enumerate(lines) if line["kind"] == kind and line["request"] == "0")
        fields = [(name,) for name in lines[number]] + [("params", name) for name in lines[number].get("params", ())]
        for place in fields if LONG else fields[::3]:
            value = STRANGE[tried % len(STRANGE)]
            tried += 1
            variant = changed(lines[number], place, lambda _, value=value: value)
            try:
                path = write_chained(tmp_path / "changed.jsonl", [*lines[:number], variant, *lines[number + 1 :]])
            except KeyError:  # nothing follows it any more
                continue
            with suppress(CutawayError):
                replayer(path)
            with suppress(CutawayError):
                read_receipts(path)
    assert tried > (60 if LONG else 20)


def of(lines: list[Content], kind: str, request: str = "0") -> int:
    """Where the first such line of a request is."""
    return next(n for n, line in enumerate(lines) if line["kind"] == kind and line["request"] == request)


def test_scores_come_once(record: Path, tmp_path: Path) -> None:
    """Of two lines a replay would be compared with one, and the other could say anything."""
    lines = contents(record)
    number = of(lines, "scores")
    path = write_chained(tmp_path / "twice.jsonl", [*lines[:number], {**lines[number], "scores": []}, *lines[number:]])
    with pytest.raises(BrokenLineError, match="once more"):
        read_record(path)


ENDS: list[Content] = [
    {"reason": "tired"},
    {"reason": None},
    {"reason": "abort", "embedding": "00" * 32},
    {"reason": "abort", "further": 1},
    {"tokens": [3.0, 3]},
]


@pytest.mark.parametrize("change", ENDS, ids=str)
def test_an_end_says_nothing_that_is_not_so(
    record: Path, tmp_path: Path, replayer: Callable[[Path], list[Difference | None]], change: Content
) -> None:
    """Of a request that didn't come to its end, too, whose end a replay has not."""
    lines = contents(record)
    number = of(lines, "end")
    path = write_chained(
        tmp_path / "changed.jsonl", [*lines[:number], {**lines[number], **change}, *lines[number + 1 :]]
    )
    assert "request 0, end: " in str(replayer(path)[0])


def test_numbers_are_of_their_type(
    record: Path, tmp_path: Path, replayer: Callable[[Path], list[Difference | None]]
) -> None:
    """1, 1.0 and true are equal in Python."""
    lines = contents(record)
    number = of(lines, "token")
    for line in ({**lines[number], "id": float(lines[number]["id"])}, {**lines[number], "tensors": []}):
        path = write_chained(tmp_path / "changed.jsonl", [*lines[:number], line, *lines[number + 1 :]])
        assert replayer(path)[0] is not None
    for name in ("format", "numerics"):
        with pytest.raises(InvalidRequestError, match=f"{name} is True"):
            verify(write_chained(tmp_path / "changed.jsonl", [{**lines[0], name: True}, *lines[1:]]))


def test_what_is_missing_is_noted(record: Path, smollm2_path: Path, tmp_path: Path) -> None:
    """Masks made by another package; a request without its receipt."""
    header, *lines = contents(record)
    lines = [line for line in lines if line["kind"] != "receipt" or line["request"] != "1"]
    found = verify(write_chained(tmp_path / "a.jsonl", [{**header, "grammars": "0.1"}, *lines]), str(smollm2_path))
    assert found.same_bits
    first, second = found.notes
    assert "made by llguidance '0.1'" in first
    assert "request 1 has no receipt" in second


@pytest.mark.parametrize("name", ["tensors", "metadata", "tokenizer", "template"])
def test_another_model_is_named(record: Path, smollm2_path: Path, tmp_path: Path, name: str) -> None:
    header, *lines = contents(record)
    path = write_chained(tmp_path / "changed.jsonl", [changed(header, (name,)), *lines])
    found = verify(path, str(smollm2_path), threads=1)
    assert not found.same_bits
    assert f"a header: {name} is" in str(found.difference)


@pytest.mark.parametrize("name", ["hf:owner/repo:Q4_K_M", "owner/repo", "smollm2", "qwen2.5-0.5b", "https://x/y"])
def test_a_record_has_nothing_fetched(record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Its writer is a stranger: what he names is looked for on this machine alone."""
    asked: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda *arguments: asked.append(arguments))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **further: asked.append(arguments))
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **further: asked.append(arguments))  # pip
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "empty"))
    monkeypatch.delenv("CUTAWAY_OFFLINE", raising=False)
    header, *lines = contents(record)
    path = write_chained(tmp_path / "strange.jsonl", [{**header, "model": name}, *lines])
    said = rf"line 1, a header: there is no model '{name}' here, and a record has nothing fetched .* RECORD MODEL"
    with pytest.raises(ModelFileError, match=said):
        verify(path, threads=1)
    assert asked == []


def test_the_model_of_every_session_is_compared(record: Path, smollm2_path: Path, tmp_path: Path) -> None:
    """A second session of the same settings, which claims to be of another model: its tokens are right, its header is
    not. And the version of what makes the masks is told where it is another one.
    """
    header, *lines = contents(record)
    second = {**changed(header, ("tensors",)), "grammars": "0.0.1"}
    path = write_chained(tmp_path / "two.jsonl", [header, *lines, second, *lines])
    found = verify(path, str(smollm2_path), threads=1)
    assert found.requests == 2
    assert str(found.difference).startswith(f"line {len(lines) + 2}, a header: tensors is ")
    (note,) = found.notes
    assert "made by llguidance '0.0.1'" in note


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [("numerics", 99, "numerics is 99"), ("format", 2, "format is 2"), ("level", "words", "'words'")],
)
def test_what_can_not_be_replayed_is_refused(record: Path, tmp_path: Path, name: str, value: object, part: str) -> None:
    header, *lines = contents(record)
    path = write_chained(tmp_path / "changed.jsonl", [{**header, name: value}, *lines])
    with pytest.raises(InvalidRequestError, match=part):
        verify(path)


@pytest.fixture(scope="module")
def valued(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A request at level tensors, its prompt cut in two."""
    path = tmp_path_factory.mktemp("record") / "answers.jsonl"
    options: dict[str, Any] = {"max_num_batched_tokens": 3, "max_num_seqs": 1}
    with LLM(smollm2_path, threads=1, max_model_len=64, record=Record(path, TENSORS), **options) as llm:
        llm.generate(PROMPT, SamplingParams(temperature=0.8, seed=5, max_tokens=2), use_tqdm=False)
    return path


def test_a_full_disk_ends_the_record_and_no_answer(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third file of values has no room: what there was until then verifies, and nothing half is left."""
    path, params = tmp_path / "answers.jsonl", SamplingParams(temperature=0.8, seed=5, max_tokens=5)
    replace, written = os.replace, []

    def full(source: Path, target: Path) -> None:
        written.append(target)
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        replace(source, target)

    with LLM(smollm2_path, threads=1, max_model_len=64, record=Record(path, TENSORS)) as llm:
        monkeypatch.setattr(whole_file.os, "replace", full)
        answer = llm.generate(PROMPT, params, use_tqdm=False)[0]
        monkeypatch.undo()
    assert len(answer.outputs[0].token_ids) == 5
    assert answer.record is not None
    assert "No space left on device" in answer.record["error"]
    assert len(list(folder_of(path).iterdir())) == 2
    found = verify(path, str(smollm2_path), threads=1)
    assert (found.same_bits, found.tokens) == (True, 2)


def test_a_fault_of_hashing_ends_the_record_and_no_answer(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no memory for what an operation of the third step wrote."""
    path, params = tmp_path / "answers.jsonl", SamplingParams(temperature=0.8, seed=5, max_tokens=5)
    see, seen = OpenStep.see, []

    def fails(opened: OpenStep, name: str, layer: int, array: Any) -> None:
        seen.extend([name] if name == "rope" and layer == 7 else [])
        if len(seen) == 3:
            raise MemoryError("of the test")
        see(opened, name, layer, array)

    with LLM(smollm2_path, threads=1, max_model_len=64, record=Record(path, OPERATIONS)) as llm:
        monkeypatch.setattr(OpenStep, "see", fails)
        answer = llm.generate(PROMPT, params, use_tqdm=False)[0]
        monkeypatch.undo()
    assert len(answer.outputs[0].token_ids) == 5
    assert answer.record is not None
    assert "of the test" in answer.record["error"]
    found = verify(path, str(smollm2_path), threads=1)
    assert (found.same_bits, found.tokens) == (True, 2)


def copied(record: Path, target: Path) -> tuple[Path, Path]:
    """The folder of a record's values, copied; and where the record itself would be beside it."""
    copy = target / record.name
    shutil.copytree(folder_of(record), folder_of(copy))
    return copy, folder_of(copy)


def test_values_are_named(valued: Path, smollm2_path: Path, tmp_path: Path) -> None:
    """One bit of one number in a file beside the record, whose digest somebody has put right."""
    copy, folder = copied(valued, tmp_path)
    lines = contents(valued)
    assert verify(write_chained(copy, lines), str(smollm2_path), threads=1).same_bits
    number = next(n for n, line in enumerate(lines) if line["kind"] == "token")
    (first, second) = lines[number]["tensors"]
    assert (first[2], first[3], second[2], second[3]) == (0, 3, 3, 2)  # positions and rows of the two parts
    file = folder / second[0]
    tensor = open_safetensors(file)["layers.17.attention"]
    raw = bytearray(file.read_bytes())
    place = tensor.offset + 4 * (576 + 12)  # of the second row, which is position 4
    raw[place] ^= 1
    file.write_bytes(raw)
    found = verify(copy, str(smollm2_path), threads=1)
    assert "was changed: its SHA-256" in str(found.difference)
    second[1] = hashlib.sha256(raw).hexdigest()
    found = verify(write_chained(copy, lines), str(smollm2_path), threads=1)
    assert "layers.17.attention, position 4, number 12: " in str(found.difference)
    assert "in the record" in str(found.difference)
    assert "; 1 of 1152 differ" in str(found.difference)


def test_all_values_are_compared(valued: Path, smollm2_path: Path, tmp_path: Path) -> None:
    """Values that lie where nothing is computed, that are missing, or of no operation: a replay would never look."""
    copy, folder = copied(valued, tmp_path)
    lines = contents(valued)
    number = [n for n, line in enumerate(lines) if line["kind"] == "token"][1]
    (place,) = lines[number]["tensors"]

    def file_of(arrays: dict[str, np.ndarray[Any, Any]]) -> list[str]:
        content = b"".join([safetensors_head(arrays)[0], *(each.tobytes() for each in arrays.values())])
        (folder / "made").write_bytes(content)
        return ["made", hashlib.sha256(content).hexdigest()]

    def values() -> dict[str, np.ndarray[Any, Any]]:
        found = open_safetensors(folder / place[0])
        return {name: each.stored.view(NUMBERS[each.block_type.name]).copy() for name, each in found.items()}

    def difference(tensors: list[Any]) -> str:
        line = {**lines[number], "tensors": tensors}
        path = write_chained(copy, [*lines[:number], line, *lines[number + 1 :]])
        return str(verify(path, str(smollm2_path), threads=1).difference)

    assert difference([[*file_of(values()), *place[2:]]]) == "None"
    assert "from position 1000000 on, and not 5" in difference([[*place[:2], 10**6, 1]])
    assert "from position 7 on, and not 6" in difference([place, [*place[:2], 7, 1]])
    assert "up to position 5, and not 6" in difference([])
    without = values()
    del without["layers.3.attention"]
    assert "layers.3.attention, position 5: " in difference([[*file_of(without), *place[2:]]])
    further = {**values(), "layers.99.attention": np.zeros((1, 576), np.float32)}
    assert "layers.99.attention has 1 rows that the replay has not" in difference([[*file_of(further), *place[2:]]])
    longer = {**values(), "embed": np.zeros((2, 576), np.float32)}
    assert "embed, position 5: " in difference([[*file_of(longer), *place[2:]]])
    flat = {**values(), "embed": np.zeros(576, np.float32)}
    assert "embed is no table of rows" in difference([[*file_of(flat), *place[2:]]])
    assert "was changed" in difference([[*place[:2], "x", 1]])


def test_a_model_that_was_exchanged_in_its_place_has_another_digest(tmp_path: Path) -> None:
    """Written into the same file, whose time of writing somebody has set back, as rsync --inplace -t does."""
    model = write_tiny_llama(tmp_path / "model.gguf")
    before, facts = model_digests(model), model.stat()
    assert model_digests(model) == before
    with model.open("r+b") as file:
        file.seek(-7, os.SEEK_END)
        last = file.read(1)
        file.seek(-7, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    os.utime(model, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert model.stat().st_mtime_ns == facts.st_mtime_ns
    assert model_digests(model) == model_digests(model, fresh=True) != before


def test_the_first_operation_that_differs_is_named(record: Path, smollm2_path: Path, tmp_path: Path) -> None:
    """Another model with the same names: one weight of layer 11 differs, and the record claims to be of it."""
    model = tmp_path / "model.gguf"
    raw = bytearray(smollm2_path.read_bytes())
    with open_gguf(smollm2_path) as gguf:
        raw[gguf.tensors["blk.11.ffn_down.weight"].offset + 7] ^= 0x10
    model.write_bytes(raw)
    digests = model_digests(model)
    header, *lines = contents(record)
    assert verify(record, str(model), threads=1).difference == (
        f"line 1, a header: tensors is {header['tensors']!r}; of {model} it is {digests.tensors!r}: it is another model"
    )
    path = write_chained(tmp_path / "claims.jsonl", [{**header, "tensors": digests.tensors}, *lines])
    found = verify(path, str(model), threads=1)
    assert str(found.difference).startswith("request 0, ")
    assert str(found.difference).endswith("layers.11.down is the first operation whose output differs")
