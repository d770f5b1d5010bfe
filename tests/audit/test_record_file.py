"""The record's file: written line by line, by one process, whatever becomes of the disk or of the process."""

import errno
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from cutaway import LLM, Record, SamplingParams
from cutaway.audit.record import record_file, recorded
from cutaway.audit.record.choice_log import ChoiceLog
from cutaway.audit.record.levels import TENSORS
from cutaway.audit.record.lines import BrokenLineError, exact, follow, read_line, write_line
from cutaway.audit.record.read_receipts import check_held, read_receipts
from cutaway.audit.record.read_record import read_record
from cutaway.audit.record.record import RecordSink
from cutaway.audit.record.record_file import RecordFile
from cutaway.audit.record.recorded import RequestIndex
from cutaway.audit.record.tensor_files import TensorFiles, folder_of
from cutaway.audit.record.verify import verify
from cutaway.errors import CapacityError, CutawayError, InvalidRequestError
from support.machines import subprocess_environment
from support.patience import SECONDS
from support.records import Content, contents, whole_requests, write_chained

PROMPT = [504, 3575, 282, 4649, 314]


def header(file: RecordFile) -> dict[str, Any]:
    return {"kind": "header", "format": 1, "receipts": file.link.number}


def write_request(file: RecordFile, first: str, name: str, tokens: int) -> None:
    """A request without meaning, from its beginning to its receipt."""
    last = file.add({"kind": "begin", "request": name}, first, "begin")
    for number in range(tokens):
        last = file.add({"kind": "token", "request": name, "choice": 0, "token": number, "id": 7}, last, "token")
    root = file.add({"kind": "end", "request": name}, last, "end")
    link = file.link
    receipt = {"kind": "receipt", "number": link.number + 1, "request": name, "root": root, "header": first}
    file.add_receipt({**receipt, "previous": link.hash}, "receipt")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A record of one session with two requests."""
    path = tmp_path / "answers.jsonl"
    file = RecordFile(path)
    first = file.begin(header(file))
    write_request(file, first, "0", 2)
    write_request(file, first, "1", 1)
    file.close()
    return path


def test_a_line_is_bound_to_the_one_before() -> None:
    raw, found = write_line({"kind": "x", "text": 'a","hash":"b', "number": 0.1}, "00")
    body = raw[: raw.rindex(b',"hash":"')]
    assert found == follow("00", body) != follow("01", body)
    assert raw == body + b',"hash":"' + found.encode() + b'"}\n'
    back = read_line(raw[:-1], 3, "file")
    assert (back.content, back.body, back.hash, back.number) == (
        {"kind": "x", "text": 'a","hash":"b', "number": 0.1},
        body,
        found,
        3,
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b'{"kind":"x"}',
        b'{"kind":"x","hash":"00"}',
        b'{"kind":"x","kind":"y","hash":"' + b"0" * 64 + b'"}',
        b'{"kind":"x","a":NaN,"hash":"' + b"0" * 64 + b'"}',
        b'{"kind":"x","a":' + b"[" * 100_000 + b',"hash":"' + b"0" * 64 + b'"}',
        b'{"a":1,"hash":"' + b"0" * 64 + b'"}',
        b'[1,"hash":"' + b"0" * 64 + b'"}',
        b'{"kind":"x","hash":"' + b"0" * 64 + b'"}x',
        b'{"kind":"x","hash":"' + b"A" * 64 + b'"}',
    ],
)
def test_what_is_no_line(raw: bytes) -> None:
    with pytest.raises(BrokenLineError, match="line 5"):
        read_line(raw, 5, "file")


def test_numbers_are_exact() -> None:
    values = [0.1, -0.0, 5e-324, float(np.float32(1) / 3), float(np.float32(-17.25)), 1e300]
    for value in values:
        back = json.loads(json.dumps(exact(value)))
        assert str(back) == str(value)
    assert [exact(each) for each in (-np.inf, np.inf, np.nan, None)] == ["-inf", "inf", "nan", None]


def test_a_new_record_is_its_owner_s_alone(path: Path, tmp_path: Path) -> None:
    """It has what everybody asked. What is there already keeps its rights."""
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    RecordFile(path).close()
    assert path.stat().st_mode & 0o777 == 0o640
    TensorFiles(tmp_path / "other.jsonl")
    assert folder_of(tmp_path / "other.jsonl").stat().st_mode & 0o777 == 0o700


def test_a_record_goes_on(path: Path) -> None:
    """Another session, whose header follows the last receipt."""
    file = RecordFile(path)
    assert file.link.number == 2
    write_request(file, file.begin(header(file)), "0", 1)
    file.close()
    content = read_record(path)
    assert (content.changed, content.torn) == (None, [])
    assert [len(session.requests) for session in content.sessions] == [2, 1]
    assert [each.content["number"] for each in content.receipts] == [1, 2, 3]


def test_every_torn_end_is_read_and_gone_on_from(path: Path) -> None:
    """What a kill or a full disk may leave: the file up to any byte of its last line."""
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last, len(whole)):
        path.write_bytes(whole[:end])
        content = read_record(path)
        assert content.changed is None
        assert content.torn == ([len(whole.splitlines())] if end > last else [])
        assert len(content.sessions[0].requests) == 2
        if end % 50 == 0:
            file = RecordFile(path)
            write_request(file, file.begin(header(file)), "0", 1)
            file.close()
            content = read_record(path)
            assert content.changed is None
            assert content.torn == ([len(whole.splitlines())] if end > last else [])
            assert len(content.sessions) == 2


@pytest.mark.parametrize("change", [(b'"number":2', b'"number":02'), (b'"number":2', b'"number":2.'), (b'{"', b'"')])
def test_a_line_with_its_end_was_not_torn(path: Path, change: tuple[bytes, bytes]) -> None:
    """What is no JSON and ends as a line does was changed: a kill takes ends away."""
    *lines, last = path.read_bytes().splitlines(keepends=True)
    assert change[0] in last
    path.write_bytes(b"".join([*lines, last.replace(*change, 1)]))
    with pytest.raises(BrokenLineError, match=f"line {len(lines) + 1} is no JSON"):
        read_record(path)


def test_reading_looks_at_each_request_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's record has a hundred thousand of them: none is searched for among the others."""
    path, count, looks = tmp_path / "many.jsonl", 200, []
    file = RecordFile(path)
    first = file.begin(header(file))
    for number in range(count):
        write_request(file, first, str(number), 1)
    file.close()

    def look(self: RequestIndex) -> str:
        looks.append(self)
        return str(vars(self)["own"])

    counted = property(look, lambda self, value: vars(self).update(own=value))
    monkeypatch.setattr(RequestIndex, "id", counted, raising=False)
    found = read_receipts(path)
    assert (len(found.receipts), found.difference) == (count, None)
    assert count <= len(looks) <= 10 * count


def write_many(path: Path, requests: int, tokens: int) -> Path:
    """A record whose requests are all computed at once: their lines take turns."""
    names = [str(number) for number in range(requests)]
    token = {"id": 5, "text": " x", "logprob": -1.5, "noise": 0.5, "residual": "0" * 64, "steps": [[1, 2, 3, 4, 5]]}
    lines: list[Content] = [{"kind": "header", "format": 1}]
    lines += [{"kind": "begin", "request": name, "prompt_ids": [1, 2, 3], "params": {}} for name in names]
    for number in range(tokens):
        places = [{"kind": "token", "request": name, "choice": 0, "token": number} for name in names]
        lines += [each | token for each in places]
    for name in names:
        lines.append({"kind": "end", "request": name, "time": "now", "reason": "end", "tokens": [tokens], "steps": []})
        lines.append({"kind": "receipt", "request": name})
    return write_chained(path, lines)


def test_memory_is_for_an_index_and_one_request(tmp_path: Path) -> None:
    """What is kept of a further token is where its line is, 16 bytes, and its part of what a request takes."""

    def peak(path: Path, count: int) -> int:
        tracemalloc.start()
        try:
            content = read_record(path)
            found = read_receipts(content)
            read = [len(each.read().tokens) for each in content.sessions[0].requests]
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (content.changed, found.difference, read) == (None, None, [100] * count)
        assert [each.tokens for each in found.receipts] == read
        return most

    peak(write_many(tmp_path / "first.jsonl", 2, 100), 2)  # what is kept once
    small, large = (write_many(tmp_path / f"{count}.jsonl", count, 100) for count in (20, 60))
    further = (peak(large, 60) - peak(small, 20)) / 4000
    assert large.stat().st_size - small.stat().st_size > 4000 * 250
    assert further < 75


def test_a_request_is_read_as_it_was_indexed(tmp_path: Path) -> None:
    """Or it is refused: a token is exchanged between both, and its line bound anew."""
    path = write_many(tmp_path / "answers.jsonl", 3, 4)
    requests = read_record(path).sessions[0].requests
    whole = path.read_bytes()
    lines = contents(path)
    (place,) = [at for at, each in enumerate(lines) if (each.get("request"), each.get("token")) == ("1", 2)]
    lines[place]["id"] = 6
    other = write_chained(tmp_path / "other.jsonl", lines).read_bytes()
    assert len(other) == len(whole)
    with path.open("r+b") as file:  # in its place
        file.write(other)
    assert [len(requests[number].read().tokens) for number in (0, 2)] == [4, 4]
    with pytest.raises(InvalidRequestError, match="request 1 are not those that were there at first"):
        requests[1].read()


def test_a_line_without_end_is_not_read_to_its_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "LONGEST_LINE", 2000)
    assert read_record(path).changed is None
    with path.open("ab") as file:
        file.write(b"{" * 2001)
    with pytest.raises(InvalidRequestError, match=r"line \d+ has more than 2,000 bytes"):
        read_record(path)


def test_each_line_is_read_once_for_the_index(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ``receipts``, too, which looks for one that somebody holds: but receipts, none is read again."""
    plain, read = recorded.LineFile.line, []
    monkeypatch.setattr(recorded.LineFile, "line", lambda *arguments: (read.append(1), plain(*arguments))[1])
    places: list[int] = []
    lines = recorded.LineFile.lines
    monkeypatch.setattr(recorded.LineFile, "lines", lambda self: (places.append(1) or each for each in lines(self)))
    *_, last = (json.loads(line) for line in path.read_bytes().splitlines())
    content = read_record(path)
    assert read_receipts(content).difference is None
    assert check_held(content, {k: v for k, v in last.items() if k != "kind"}) is None
    assert (len(places), read) == (len(path.read_bytes().splitlines()), [])


def test_one_writer_at_a_time(path: Path) -> None:
    file = RecordFile(path)
    with pytest.raises(InvalidRequestError, match="another engine"):
        RecordFile(path)
    file.close()
    RecordFile(path).close()


@pytest.mark.parametrize("content", [b"hello\n", b"hello", b'{"kind":"header"}\n', b"\n" * 200_000])
def test_another_file_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError, match="is no record"):
        RecordFile(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", ["nowhere/answers.jsonl", ".", "a\0b"])
def test_a_file_that_can_not_be_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError, match="can't be written"):
        Record(tmp_path / name)


@pytest.mark.parametrize("room", [0, 30])
def test_a_full_disk_is_told_at_the_start(tmp_path: Path, room: int) -> None:
    path = tmp_path / "answers.jsonl"
    file, limits = RecordFile(path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(CapacityError, match="ended before its header"):
            file.begin(header(file))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        file.close()
    assert path.read_bytes() == b""


@pytest.mark.parametrize("kind", ["pipe", "nothing", "full"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    """A pipe that nobody reads from would take what fits in it, and then hold up all requests."""
    path = tmp_path / "answers.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"nothing": "/dev/null", "full": "/dev/full"}[kind])
    with pytest.raises(InvalidRequestError, match="no regular file"):
        Record(path)


def test_a_long_file_of_something_else_is_not_read(tmp_path: Path) -> None:
    """Neither to add to it nor to verify it: more than memory holds."""
    path = tmp_path / "disk.img"
    with path.open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(InvalidRequestError, match="is no record"):
        RecordFile(path)
    for place in (path, Path("/dev/zero")):
        with pytest.raises(InvalidRequestError, match="is no record"):
            read_record(place)


def test_a_disk_that_is_full_later_harms_no_request(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A write that brings a part of a line, and those after it nothing: the record keeps whole lines and says so."""
    params = SamplingParams(temperature=0.8, seed=3, max_tokens=6)
    path = tmp_path / "answers.jsonl"
    with LLM(smollm2_path, threads=1, max_model_len=64) as llm:
        expected = llm.generate([PROMPT, PROMPT], params, use_tqdm=False)
    written = 0
    write = os.write

    def full(descriptor: int, content: bytes) -> int:
        """Room for seven lines, however many come at once, and a part of the next."""
        nonlocal written
        lines = content.splitlines(keepends=True)
        room, written = max(7 - written, 0), written + len(lines)
        return write(descriptor, b"".join(lines[:room]) + (lines[room][:20] if room < len(lines) else b""))

    with LLM(smollm2_path, threads=1, max_model_len=64, record=Record(path)) as llm:
        monkeypatch.setattr(record_file.os, "write", full)
        found = llm.generate([PROMPT, PROMPT], params, use_tqdm=False)
        monkeypatch.undo()
        assert [each.outputs for each in found] == [each.outputs for each in expected]
        for each in found:
            assert each.record is not None
            assert "there was room for a part of the line" in each.record["error"]
    assert len(caplog.records) == 1
    assert "ended before request" in caplog.text
    lines = contents(path)
    assert len(lines) == 8  # and the header
    verdict = verify(path, str(smollm2_path), threads=1)
    assert verdict.same_bits
    assert verdict.tokens == 5
    assert len(verdict.notes) == 2  # both requests lack their ends


def test_the_whole_lines_of_a_step_stay_where_there_is_room_for_a_part(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the room: the lines that fit are there, the error names the first that does not."""
    before, lines = path.read_bytes(), [b'{"a":1}\n', b'{"b":22}\n', b'{"c":3}\n']
    ends = [0, 8, 17, 25]
    calls: list[int] = []
    for room in range(26):
        copy = tmp_path / f"{room}.jsonl"
        copy.write_bytes(before)
        file = RecordFile(copy)
        write = os.write

        def short(descriptor: int, content: bytes, room: int = room, write: Any = write) -> int:
            calls.append(len(content))
            return write(descriptor, content[:room])

        with monkeypatch.context() as patch:
            patch.setattr(record_file.os, "write", short)
            file.write(lines, lambda number: f"line {number}")
            if room < 25:
                file.write(lines, lambda number: "never")
        file.close()
        whole = sum(end <= room for end in ends) - 1
        assert copy.read_bytes() == before + b"".join(lines[:whole])
        assert (file.error is None) == (whole == 3)
        if file.error is not None:
            assert f"ended before line {whole} (" in file.error
            assert ("a part of the line" in file.error) == (room not in ends)
    assert calls == [25] * 26  # one call for all lines, and none after it has failed


@pytest.mark.parametrize(
    ("place", "calls"), [((ChoiceLog, "token_line"), 6), ((RecordSink, "add"), 6), ((RecordSink, "flush"), 3)]
)
@pytest.mark.parametrize("is_done", [False, True])
def test_an_interrupted_step_ends_a_record_that_is_right(
    smollm2_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: tuple[type, str],
    calls: int,
    is_done: bool,
) -> None:
    """Before and behind each thing that it does for a token, the third of each request: no line counts one that is
    not there.
    """
    path = tmp_path / "answers.jsonl"
    plain, count = getattr(*place), itertools.count(1)

    def interrupted(*arguments: Any) -> Any:
        if next(count) != calls:
            return plain(*arguments)
        if is_done:
            plain(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(*place, interrupted)
    options: dict[str, Any] = {"max_model_len": 64, "threads": 1}
    with (
        LLM(smollm2_path, **options, record=Record(path)) as llm,
        pytest.raises(CutawayError, match="lost track of its memory"),
    ):
        llm.generate([PROMPT, PROMPT[:3]], SamplingParams(temperature=0, max_tokens=9), use_tqdm=False)
    monkeypatch.undo()
    written = 3 if place[1] == "flush" and is_done else 2
    assert [len(each.tokens) for each in whole_requests(path)] == [written, written]
    verdict = verify(path, str(smollm2_path), threads=1)
    assert (verdict.difference, verdict.tokens, len(verdict.notes)) == (None, 2 * written, 2)


@pytest.mark.parametrize("fault", ["disk", "recorder"])
def test_a_record_that_has_ended_costs_nothing_more(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """No log-probability is found for it, and no line is made, whether the disk was full or the recorder at fault."""
    record, made = Record(tmp_path / "answers.jsonl"), list[str]()
    token_line = ChoiceLog.token_line

    def counted(log: ChoiceLog, *arguments: Any) -> str:
        made.append(token_line(log, *arguments))
        if fault == "recorder":
            raise ValueError("of the test")
        return made[-1]

    monkeypatch.setattr(ChoiceLog, "token_line", counted)
    with LLM(smollm2_path, max_model_len=64, threads=1, record=record) as llm:
        assert record.wants_logprobs
        if fault == "disk":
            monkeypatch.setattr(record_file.os, "write", Mock(side_effect=OSError(errno.ENOSPC, "full")))
        for _ in range(2):
            output = llm.generate([PROMPT], SamplingParams(temperature=0, max_tokens=4), use_tqdm=False)[0]
            assert len(output.outputs[0].token_ids) == 4
            assert output.record is not None
            assert "error" in output.record
        assert not record.wants_logprobs
    assert len(made) == 1


RUN = [sys.executable, "-m", "cutaway", "run"]
ASKED = ["Count to ten.", "--seed", "3", "--temperature", "0.8"]


def test_a_limit_of_the_system_harms_no_answer(smollm2_path: Path, tmp_path: Path) -> None:
    """RLIMIT_FSIZE, which also a disk quota looks like: the answer is whole, the command says what it lacks."""
    path = tmp_path / "answers.jsonl"
    command = [*RUN, str(smollm2_path), *ASKED, "--max-tokens", "12"]
    plain = subprocess.run(command, env=subprocess_environment(), capture_output=True, timeout=SECONDS, check=True)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))

    found = subprocess.run(
        [*command, "--record", str(path)],
        env=subprocess_environment(),
        capture_output=True,
        timeout=SECONDS,
        preexec_fn=limit,
    )
    assert found.stdout == plain.stdout
    assert found.returncode == CapacityError.exit_code
    assert b"ended before request 0, token" in found.stderr
    content = read_record(path)
    assert (content.changed, content.torn) == (None, [])
    assert 0 < content.sessions[0].requests[0].tokens < 12


def test_a_kill_loses_the_last_line_at_most(smollm2_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    command = [*RUN, str(smollm2_path), *ASKED, "--ignore-eos"]
    child = subprocess.Popen(
        [*command, "--max-tokens", "900", "--record", str(path)],
        env=subprocess_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + SECONDS
    while not path.exists() or path.read_bytes().count(b'"kind":"token"') < 8:
        assert time.monotonic() < end
        assert child.poll() is None
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=SECONDS)
    content = read_record(path)
    assert content.changed is None
    (request,) = whole_requests(path)
    assert len(request.tokens) >= 8
    assert len(request.tokens) + 2 + len(content.torn) == len(path.read_bytes().splitlines())
    assert request.end is None


def test_a_fault_leaves_nothing_of_the_step(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a prompt in two chunks, the first one's values have been written, and the second one's were taken."""
    record = Record(tmp_path / "answers.jsonl", TENSORS)
    files = record._rows
    assert isinstance(files, TensorFiles)
    kept: list[int] = []
    keep = files.keep

    def fail(request_id: str, choices: Sequence[int]) -> list[Any]:
        kept.append(1)
        if len(kept) == 2:
            raise RuntimeError("a fault")
        return keep(request_id, choices)

    monkeypatch.setattr(files, "keep", fail)
    options: dict[str, Any] = {"max_num_batched_tokens": 4, "max_num_seqs": 1}
    with LLM(smollm2_path, threads=1, max_model_len=64, record=record, **options) as llm:
        (output,) = llm.generate([PROMPT], SamplingParams(max_tokens=2), use_tqdm=False)
        assert len(output.outputs[0].token_ids) == 2
        assert output.record == {"error": record._sink.error}
        assert "ended by an error (RuntimeError: a fault)" in str(record._sink.error)
        assert (record._places, record._hashes, record._logs) == ({}, {}, {})
        assert (files._rows, files._first) == ({}, {})


def test_a_request_that_never_had_a_place_is_no_error(smollm2_path: Path, tmp_path: Path) -> None:
    """Its time was up in the backlog: the record is right, and says nothing of it."""
    path = tmp_path / "answers.jsonl"
    options: dict[str, Any] = {"max_num_seqs": 1, "max_waiting": 1}
    with LLM(smollm2_path, threads=1, max_model_len=2048, record=Record(path), **options) as llm:
        lasting = SamplingParams(max_tokens=2000, ignore_eos=True)
        outputs = llm.generate([PROMPT] * 4, lasting, use_tqdm=False, timeout=0.5)
    assert [each.record for each in outputs if each.record is None or "error" in each.record] == []
    assert list(outputs[-1].record or {}) == ["unrecorded"]
    assert "before it had a place" in str(outputs[-1].record)
    content = read_record(path)
    assert content.changed is None
    assert len(list(content.receipts)) == len([each for each in outputs if "receipt" in (each.record or {})])


def test_what_is_wrong_with_a_line_in_between_is_said(path: Path) -> None:
    """It was read on, as it could be the torn end of a session; the error is the line's own all the same."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"id":7', b'"id":NaN')
    path.write_bytes(b"".join(lines))
    with pytest.raises(BrokenLineError, match=r"line 3 is no JSON \(NaN is no number"):
        read_record(path)
