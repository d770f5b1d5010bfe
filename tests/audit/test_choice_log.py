"""A token's line is the text that JSON's own encoder gives."""

import hashlib
import json
from typing import Any

import numpy as np
import pytest

from cutaway.audit.record.choice_log import ChoiceLog, further_fields
from cutaway.audit.record.lines import encode
from cutaway.engine.outputs import Delta
from cutaway.sampling.sampler import SampleResult

RESIDUALS = np.random.default_rng(7).standard_normal((2, 576)).astype(np.float32)
STEPS = [[123, 45, 1, 16, 16]]


def line(
    *,
    request: str = "17",
    text: str = " hello",
    logprob: float | None = -1.2345678806304932,
    noise: float | None = 3.4567890167236328,
    steps: list[list[int]] = STEPS,
    further: dict[str, Any] | None = None,
) -> str:
    sample, delta = SampleResult(49151, logprob, (), 3, noise), Delta(text, [49151], None, None, 2)
    listed = [encode(each) for each in steps]
    return ChoiceLog(request, 2).token_line(sample, delta, RESIDUALS[0], listed, further or {}) + "}"


def rolled(before: bytes, row: int) -> bytes:
    """The rolling hash, by docs/record.md."""
    return hashlib.sha256(before + RESIDUALS[row].astype("<f4").tobytes()).digest()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"text": 'é"\\\n\x00\x7f\u2028\ud83d😀</,"hash":"'}, {}),
        ({"request": 'a"b'}, {}),
        ({"logprob": float("-inf"), "noise": None}, {"logprob": "-inf"}),
        ({"logprob": -0.0, "noise": 5e-324}, {}),
        ({"logprob": -1e300, "noise": 1e16}, {}),
        ({"noise": float("nan")}, {"noise": "nan"}),
        ({"steps": [[0, 0, 512, 1, 512], [1, 512, 3, 2, 4]]}, {}),
        ({"steps": []}, {}),
    ],
)
def test_the_text_is_that_of_the_encoder(given: dict[str, Any], expected: dict[str, Any]) -> None:
    usual = {
        "kind": "token",
        "request": "17",
        "choice": 2,
        "token": 0,
        "id": 49151,
        "text": " hello",
        "logprob": -1.2345678806304932,
        "noise": 3.4567890167236328,
        "residual": rolled(bytes(32), 0).hex(),
        "steps": STEPS,
    }
    content = {**usual, **given, **expected}
    assert line(**given) == encode(content)
    assert json.loads(line(**given)) == json.loads(encode(content))


def test_a_choice_counts_its_tokens_and_rolls_its_hash() -> None:
    log = ChoiceLog("17", 2)
    before = bytes(32)
    for number, row in enumerate((0, 1, 1)):
        before = rolled(before, row)
        text = log.token_line(SampleResult(5, -0.5, ()), Delta("", [5], None, None, 2), RESIDUALS[row], [], {})
        content = json.loads(text + "}")
        assert (content["token"], content["residual"]) == (number, before.hex())
        assert log.length == number + 1


def test_further_fields_follow() -> None:
    sample = SampleResult(7, -0.5, ((5, -0.25), (6, float("-inf"))), 3, None)
    more = further_fields(sample, Delta("", [7], None, "stop", 0, "é"), has_logprobs=True)
    assert more == {"rank": 3, "top": [[5, -0.25], [6, "-inf"]], "finish": "stop", "stop": "é"}
    assert line(further=more) == line()[:-1] + "," + encode(more)[1:]
    assert further_fields(sample, Delta("", [7], None, None, 0), has_logprobs=False) == {}


def test_what_is_no_number_of_json_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        line(further={"tensors": [float("nan")]})
