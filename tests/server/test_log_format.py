"""The log's lines: for people and for programs, one record each."""

import json
import logging
import sys
from typing import Any

import pytest

from cutaway.server.log_format import JsonLines, TextLines, log_to_stderr

FIELDS = {
    "client": "127.0.0.1:5",
    "method": "POST",
    "path": "/v1/completions",
    "status": 200,
    "seconds": 0.5,
    "request_id": "abc",
    "prompt_tokens": 3,
}


def record(message: str = "request", **further: Any) -> logging.LogRecord:
    made = logging.LogRecord("cutaway.server", logging.INFO, "file", 1, message, (), None)
    made.__dict__.update(further)
    return made


def test_lines_for_people() -> None:
    line = TextLines().format(record(fields=FIELDS))
    assert line[20:] == "127.0.0.1:5 POST /v1/completions 200 0.500 s request_id=abc prompt_tokens=3"
    assert TextLines().format(record("100 % sure"))[20:] == "100 % sure"


def test_lines_for_programs() -> None:
    line = json.loads(JsonLines().format(record(fields=FIELDS)))
    assert line.items() >= FIELDS.items()
    assert (line["level"], line["message"]) == ("info", "request")
    assert line["time"].endswith("+00:00")


def test_an_error_is_one_line_for_programs() -> None:
    try:
        raise KeyError("of\nthe test")
    except KeyError:
        made = record("failed", exc_info=sys.exc_info())
    written = JsonLines().format(made)
    assert "\n" not in written
    assert "KeyError" in json.loads(written)["traceback"]


def test_the_loggers_write_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    loggers = [logging.getLogger(name) for name in ("cutaway.server", "uvicorn")]
    before = [(each.handlers, each.propagate, each.level) for each in loggers]
    try:
        log_to_stderr("json")
        logging.getLogger("cutaway.server.request").info("request", extra={"fields": FIELDS})
        logging.getLogger("uvicorn.error").info("not told")
        logging.getLogger("uvicorn.error").warning("told")
    finally:
        for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
    output, errors = capsys.readouterr()
    assert output == ""
    assert [json.loads(line)["message"] for line in errors.splitlines()] == ["request", "told"]
