"""Errors of the engine as those of HTTP."""

import pytest

from cutaway.errors import CapacityError, CutawayError, InvalidRequestError, ModelFileError, QueueFullError
from cutaway.server.http.errors import ApiError, from_cutaway, from_validation, path


@pytest.mark.parametrize(
    ("error", "status", "param", "code"),
    [
        (InvalidRequestError("x", "n"), 400, "n", "invalid_value"),
        (InvalidRequestError("x"), 400, None, "invalid_value"),
        (CapacityError("x"), 400, None, "capacity_exceeded"),
        (QueueFullError("x", 2.0), 429, None, "queue_full"),
        (ModelFileError("x"), 500, None, "ModelFileError"),
        (CutawayError("x"), 500, None, "CutawayError"),
        (ApiError(418, "x", "p", "c"), 418, "p", "c"),
    ],
)
def test_statuses(error: Exception, status: int, param: str | None, code: str) -> None:
    found = from_cutaway(error)
    assert (found.status_code, found.param, found.code, found.message) == (status, param, code, "x")


def test_what_nobody_expected_is_told_in_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    found = from_cutaway(ZeroDivisionError("a secret"))
    assert found.status_code == 500
    assert "ZeroDivisionError" in found.message
    assert "secret" not in found.message
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "a secret" in str(record.exc_info[1])


@pytest.mark.parametrize(("seconds", "header"), [(None, "1"), (0.0, "1"), (0.2, "1"), (1.0, "1"), (3.4, "4")])
def test_when_to_come_again(seconds: float | None, header: str) -> None:
    """Whole seconds, as the header has them, and never at once."""
    assert from_cutaway(QueueFullError("x", seconds)).headers == {"Retry-After": header}


def test_paths() -> None:
    assert path(["messages", 0, "content"]) == "messages[0].content"
    assert path([0, 1, "a"]) == "[0][1].a"
    assert path([]) is None


def test_the_first_fault_is_told() -> None:
    faults = [
        {"type": "bool_type", "loc": ("body", "stream"), "msg": "Input should be a valid boolean", "input": 5},
        {"type": "missing", "loc": ("body", "messages"), "msg": "Field required", "input": {}},
    ]
    assert from_validation(faults).message == "stream is 5; it must be a valid boolean."
    assert from_validation(faults[1:]).message == "messages is missing; it is required. Add it."
    assert from_validation([{**faults[1], "loc": ("body",)}]).message == "the body is missing; it is required. Add it."
