"""What a request may ask: every value outside the limits is refused with its field, value, limits and a remedy."""

import dataclasses
import re

import numpy as np
import pytest

from cutaway.errors import InvalidRequestError
from cutaway.sampling.params import SamplingParams, fresh_seed

NOT_NUMBERS = (None, "0.5", "1", True, False, float("nan"), float("inf"), float("-inf"), [1], 1j, 10**400)
ACCEPTED = {
    "temperature": (0, 0.0, 1, 2.0, 100, 1e-300, np.float32(0.5)),
    "top_p": (1, 1.0, 1e-9, 0.5),
    "min_p": (0, 1, 0.5),
    "top_k": (-1, 0, 1, 9_999_999, 10**30, np.int64(7)),
    "max_tokens": (None, 1, 10**9),
    "seed": (None, 0, -1, 2**63 - 1, -(2**63), -9007199254740991, np.int64(7)),
    "logprobs": (None, 0, 20),
    "ignore_eos": (True, False),
}
REFUSED = {
    "temperature": (*NOT_NUMBERS, -0.1, -1e-30, 100.001),
    "top_p": (*NOT_NUMBERS, 0, 0.0, -0.5, 1.0000001),
    "min_p": (*NOT_NUMBERS, -0.1, 1.05),
    "top_k": (*NOT_NUMBERS[:-1], -2, 0.5, 40.0),
    "max_tokens": (*[each for each in NOT_NUMBERS[:-1] if each is not None], 0, -1, 16.0),
    "seed": (*NOT_NUMBERS[1:], 2**63, 2**64, 10**20, -(2**63) - 1, "100", 1.0),
    "logprobs": (*NOT_NUMBERS[1:], -1, 21, 1.0),
    "ignore_eos": (None, 0, 1, "true"),
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in ACCEPTED.items() for value in values])
def test_accepts_its_whole_range_as_plain_numbers(field: str, value: object) -> None:
    kept = getattr(SamplingParams(**{field: value}), field)
    assert kept == value
    assert type(kept) in (float, int, bool, type(None))


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in REFUSED.items() for value in values])
def test_refuses_everything_else(field: str, value: object) -> None:
    with pytest.raises(
        InvalidRequestError, match=rf"^{field} is {re.escape(repr(value))}; it must be .*\. \w"
    ) as error:
        SamplingParams(**{field: value})
    assert error.value.field == field


def test_unknown_and_positional_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=0.5)
    with pytest.raises(TypeError, match="positional"):
        SamplingParams(0.5)


def test_is_frozen_and_covers_every_field() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().temperature = 0.5
    assert {field.name for field in dataclasses.fields(SamplingParams)} == set(ACCEPTED) == set(REFUSED)


def test_fresh_seeds_are_seeds_and_differ() -> None:
    seeds = {fresh_seed() for _ in range(100)}
    assert len(seeds) == 100
    assert all(0 <= SamplingParams(seed=seed).seed < 2**63 for seed in seeds)
