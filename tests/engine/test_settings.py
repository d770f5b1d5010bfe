"""Options of the engine: what no engine can have is refused before a model is looked at; integers become Python's."""

from typing import Any

import numpy as np
import pytest

from cutaway import LLM
from cutaway.engine.settings import check_options, engine_settings
from cutaway.errors import InvalidRequestError
from cutaway.memory.kv_setting import kv_setting

NAMES = ("max_num_seqs", "max_num_batched_tokens", "kv_tokens", "max_waiting", "max_waiting_tokens")


@pytest.mark.parametrize("name", NAMES)
def test_integers_of_numpy_become_plain_ones(name: str) -> None:
    """A sum of int32 overflows where one of Python's does not."""
    for value in (np.int8(100), np.int32(2000), np.uint64(3)):
        assert type(check_options({name: value})[name]) is int
    assert check_options({name: None, "batching": "static"}) == {name: None, "batching": "static"}


@pytest.mark.parametrize("batching", ["continuous", "static", "bucketed"])
def test_what_is_in_effect(batching: str) -> None:
    """What a batching doesn't do is not said to be on."""
    settings = engine_settings(64, kv_setting("paged"), batching=batching)
    assert settings.enable_chunked_prefill is settings.enable_prefix_caching is (batching == "continuous")


@pytest.mark.parametrize(
    "options",
    [{name: value} for name in ("threads", "memory", *NAMES) for value in (10**5000 * -1, float("nan"), -1, "a")]
    + [{"threads": 10**5000}, {"memory": "9" * 400}, {"batching": np.array(["a", "b"])}, {"batching": ["static"]}],
    ids=lambda options: next(iter(options)),
)
def test_what_no_engine_can_have(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        LLM("there is no such model", **options)
    assert caught.value.field == next(iter(options))
