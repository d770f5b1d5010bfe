"""``--record``, ``verify`` and ``receipts`` as a user types them."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from command import assert_refused, cutaway, cutaway_here, start

from support.patience import SECONDS
from support.records import contents, whole_requests, write_chained


@pytest.fixture(scope="module")
def record(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of ``run`` and of ``chat``, one behind the other."""
    path = tmp_path_factory.mktemp("record") / "answers.jsonl"
    few = ("--max-tokens", "4", "--seed", "3", "--context", "256", "--record", path)
    ran = cutaway("run", smollm2_path, "The sea is", "--raw", "--json", *few)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["record"]["receipt"]["number"] == 1
    chatted = cutaway("chat", smollm2_path, *few, given=b"Hello\nAnd then?\n")
    assert chatted.returncode == 0, chatted.stderr
    return path


def test_a_record_of_two_commands_verifies(record: Path, smollm2_path: Path) -> None:
    found = cutaway("verify", record, smollm2_path, "--threads", "1")
    assert (found.returncode, found.stderr) == (0, "reading the model for its digest …\n")
    *requests, last = found.stdout.splitlines()
    assert [each.split(", ")[1] for each in requests] == ["request 0: same bits"] * 2 + ["request 1: same bits"]
    begins = [number for number, line in enumerate(record.read_text().splitlines(), 1) if '"kind":"begin"' in line]
    assert [each.split(", ")[0] for each in requests] == [f"line {number}" for number in begins]
    assert last.startswith("same bits: 3 requests, ")


def test_receipts_are_listed(record: Path) -> None:
    found = cutaway("receipts", record)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.count("unsigned") == 3
    assert found.stdout.endswith("3 receipts: each follows from the one before it\n")
    receipt = json.dumps({k: v for k, v in json.loads(record.read_bytes().splitlines()[-1]).items() if k != "kind"})
    assert cutaway("receipts", record, "--receipt", receipt).returncode == 0
    wrong = cutaway("receipts", record, "--receipt", receipt.replace('"hash": "', '"hash": "x'))
    assert (wrong.returncode, "its hash is not the record's" in wrong.stdout) == (1, True)


def test_a_difference_ends_with_1(record: Path, tmp_path: Path, smollm2_path: Path) -> None:
    """One digit changed; and one changed by somebody who made all hashes anew."""
    path = tmp_path / "changed.jsonl"
    raw = record.read_bytes()
    place = raw.index(b'"logprob":-') + 12
    path.write_bytes(raw[:place] + (b"1" if raw[place : place + 1] != b"1" else b"2") + raw[place + 1 :])
    found = cutaway("verify", path, smollm2_path)
    assert (found.returncode, found.stderr) == (1, "")
    assert found.stdout.startswith("different: line 3, request 0, choice 0, token 0, step 0: its hash")
    assert cutaway("receipts", path).returncode == 1
    lines = contents(record)
    second = [each for each in lines if each["kind"] == "token"][1]
    second["logprob"] -= 1e-7
    found = cutaway("verify", write_chained(path, lines), smollm2_path, "--json")
    verdict = json.loads(found.stdout)
    assert (found.returncode, verdict["same_bits"]) == (1, False)
    assert verdict["difference"].startswith("request 0, choice 0, token 1, step 1: logprob is ")


def test_a_record_may_come_through_a_pipe(record: Path, smollm2_path: Path, tmp_path: Path) -> None:
    """As from zcat: it can be read once only."""
    for number, command in enumerate((("verify", str(smollm2_path)), ("receipts", "--receipt", '{"number": 9}'))):
        pipe = tmp_path / f"pipe{number}"
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_bytes, args=[record.read_bytes()], daemon=True)
        writer.start()
        found = cutaway(command[0], pipe, *command[1:])
        writer.join(SECONDS)
        assert ("same bits: " if number == 0 else "no receipt 9") in found.stdout, found.stderr


def test_what_is_no_record_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before any model is looked at."""
    notes, empty = tmp_path / "notes.txt", tmp_path / "empty"
    notes.write_text("hello\n")
    empty.touch()
    for command in ("verify", "receipts"):
        for path, part in ((notes, "first line"), (empty, "no header"), (tmp_path / "nowhere", "can't be read")):
            assert_refused(cutaway_here(monkeypatch, capsys, command, str(path)), 2, str(path), part)


def test_options_that_would_do_nothing_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ("run", "smollm2", "Hello")
    here = str(tmp_path / "a.jsonl")
    key = str(tmp_path / "key")
    for options, part in (
        (("--record-level", "tokens"), "no --record"),
        (("--record-key", key), "no --record"),
        (("--record", here, "--record-level", "words"), "'words'"),
        (("--record", here, "--record-key", key), "can't be read"),
        (("--record", str(tmp_path / "nowhere" / "a.jsonl")), "can't be written"),
        (("--record", str(tmp_path)), "can't be written"),
    ):
        assert_refused(cutaway_here(monkeypatch, capsys, *run, *options), 2, part)
    assert not (tmp_path / "a.jsonl").exists()


def test_an_interrupted_answer_has_its_end(smollm2_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    few = ("--ignore-eos", "--max-tokens", "900", "--record", path)
    with start("run", smollm2_path, "Count.", *few) as child:
        end = time.monotonic() + SECONDS
        while not path.exists() or path.read_bytes().count(b'"kind":"token"') < 3:
            assert time.monotonic() < end
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=SECONDS)
    assert child.returncode == 130
    (request,) = whole_requests(path)
    assert request.end is not None
    assert request.end.content["reason"] == "abort"
    assert request.end.content["tokens"] == [len(request.tokens)]
    assert 3 <= len(request.tokens) < 900
