"""A token's line is the same text by either way."""

import json
from typing import Any

import pytest

from cutaway.audit.record.lines import encode
from cutaway.audit.record.token_text import token_text

TOKEN: dict[str, Any] = {
    "kind": "token",
    "request": "17",
    "choice": 2,
    "token": 0,
    "id": 49151,
    "text": " hello",
    "logprob": -1.2345678806304932,
    "noise": 3.4567890167236328,
    "residual": "0123456789abcdef" * 4,
    "steps": [[123, 45, 1, 16, 16]],
}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"text": 'é"\\\n\x00\x7f\u2028\ud83d😀</,"hash":"'},
        {"request": 'a"b'},
        {"logprob": "-inf", "noise": None},
        {"logprob": -0.0, "noise": 5e-324},
        {"logprob": -1e300, "noise": 1e16},
        {"steps": [[0, 0, 512, 1, 512], [1, 512, 3, 2, 4]]},
        {"steps": []},
        {"rank": 3, "top": [[5, -0.25], [6, "-inf"]], "finish": "stop", "stop": "é"},
        {"finish": "length", "stop": None, "operations": "AAAA", "tensors": [["x", "00", 0, 1]]},
    ],
)
def test_the_text_is_that_of_the_encoder(changed: dict[str, Any]) -> None:
    content = {**TOKEN, **changed}
    assert token_text(content) == encode(content)
    assert json.loads(token_text(content)) == content


@pytest.mark.parametrize("name", ["logprob", "noise"])
def test_what_is_no_number_of_json_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        token_text({**TOKEN, name: float("nan")})
