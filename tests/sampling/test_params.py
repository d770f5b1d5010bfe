"""What a request may ask: every value outside the limits is refused with its field, value, limits and a remedy."""

import contextlib
import copy
import dataclasses
import inspect
import json
import pickle
import re
from enum import Enum
from fractions import Fraction

import numpy as np
import pytest

from cutaway.errors import InvalidRequestError
from cutaway.sampling.params import SamplingParams, check_against_vocabulary, fresh_seed
from cutaway.sampling.params_table import parameter_rows
from cutaway.sampling.structured_outputs import StructuredOutputsParams
from cutaway.sampling.unsupported import UNSUPPORTED

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
    "n": (1, 4096, np.int32(2)),
    "presence_penalty": (-2, 2.0, 0),
    "frequency_penalty": (-2.0, 2, 1e-300),
    "repetition_penalty": (1e-300, 1, 100),
    "min_tokens": (0, 16, np.int64(3)),
    "prompt_logprobs": (None, 0, 20),
    "detokenize": (True, False),
    "skip_special_tokens": (True, False),
    "include_stop_str_in_output": (True, False),
}
LISTS = {  # what is given and what is kept
    "stop": (
        (None, None),
        ([], None),
        ("end", ("end",)),
        (["b", "a", "b"], ("b", "a")),
        (("\n",), ("\n",)),
        ({"b", "a"}, ("a", "b")),
        ([str(n % 64) for n in range(1000)], tuple(map(str, range(64)))),
    ),
    "bad_words": ((None, None), ([], None), (["x", " x", "x"], ("x", " x")), (["w" * 5000], ("w" * 5000,))),
    "stop_token_ids": ((None, None), ([], None), ([5, 3, 5, np.int64(3)], (5, 3)), (range(2), (0, 1))),
    "allowed_token_ids": ((None, None), ([2**31 - 1, 0, 0], (2**31 - 1, 0)), ((7,), (7,))),
    "structured_outputs": (
        (None, None),
        ({"regex": "a"}, StructuredOutputsParams(regex="a")),
        (StructuredOutputsParams(choice=["b", "a", "b"]), StructuredOutputsParams(choice=("b", "a"))),
        ({"json": {"b": 1, "a": "é"}}, StructuredOutputsParams(json='{"b":1,"a":"é"}')),
        (
            {"json_object": True, "regex": None, "disable_any_whitespace": False},
            StructuredOutputsParams(json_object=True),
        ),
    ),
    "logit_bias": (
        (None, None),
        ({}, None),
        ({7: 1, "3": -100, np.int32(5): 100.0, "00": 0.5}, {0: 0.5, 3: -100.0, 5: 100.0, 7: 1.0}),
    ),
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
    "n": (*NOT_NUMBERS, 0, -1, 4097, 10**20, 1.0),
    "presence_penalty": (*NOT_NUMBERS, -2.001, 2.001),
    "frequency_penalty": (*NOT_NUMBERS, -2.001, 2.001),
    "repetition_penalty": (*NOT_NUMBERS, 0, 0.0, -1, 100.001),
    "min_tokens": (*NOT_NUMBERS[:-1], -1, 4.0),
    "prompt_logprobs": (*NOT_NUMBERS[1:], -1, 21, 1.0),
    "detokenize": (None, 0, 1, "true"),
    "skip_special_tokens": (None, 0, 1, "true"),
    "include_stop_str_in_output": (None, 0, 1, "true"),
    "stop": ("", [""], ["a", ""], [1], ["a", None], [b"a"], b"a", {"a": 1}, 5, True, [["a"]]),
    "bad_words": ("word", "", [""], [1], ["a", None], {"a": 1}, True),
    "stop_token_ids": (5, "5", {5: 1}, True, b"5"),
    "allowed_token_ids": ([], (), 5, "5", {5: 1}, True),
    "logit_bias": (5, "5", [[5, 1]], [], True, ((5, 1),)),
    "structured_outputs": (5, "json", [{"regex": "a"}], True, ("regex", "a")),
}
REFUSED_ITEMS = {
    "stop_token_ids": (-1, True, "5", 5.0, None, 2**31, 10**400, float("nan")),
    "allowed_token_ids": (-1, True, "5", 5.0, None, 2**31, 10**400, float("nan")),
}
REFUSED_BIASES = {
    "key": (-1, "-1", "foo", "", "1.0", " 1", "１", "1" * 11, "1" * 5000, 2**31, True, 1.0, None),
    "value": (100.001, -100.001, 1e9, float("nan"), float("inf"), "1", None, True, [1], 10**400),
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in ACCEPTED.items() for value in values])
def test_accepts_its_whole_range_as_plain_numbers(field: str, value: object) -> None:
    kept = getattr(SamplingParams(**{field: value}), field)
    assert kept == value
    assert type(kept) in (float, int, bool, type(None))


@pytest.mark.parametrize(
    ("field", "value", "kept"), [(field, *case) for field, cases in LISTS.items() for case in cases]
)
def test_keeps_lists_without_duplicates_and_none_for_nothing(field: str, value: object, kept: object) -> None:
    assert getattr(SamplingParams(**{field: value}), field) == kept


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in REFUSED.items() for value in values])
def test_refuses_everything_else(field: str, value: object) -> None:
    with pytest.raises(
        InvalidRequestError, match=rf"^{field} is {re.escape(repr(value))}; it must be .*\. \w"
    ) as error:
        SamplingParams(**{field: value})
    assert error.value.field == field


@pytest.mark.parametrize(("field", "item"), [(field, item) for field, items in REFUSED_ITEMS.items() for item in items])
def test_refuses_a_list_with_anything_but_ids(field: str, item: object) -> None:
    with pytest.raises(
        InvalidRequestError, match=rf"^{field} has {re.escape(repr(item))}; it must be .*\. \w"
    ) as error:
        SamplingParams(**{field: [3, item]})
    assert error.value.field == field


@pytest.mark.parametrize("key", REFUSED_BIASES["key"])
def test_refuses_a_bias_for_anything_but_an_id(key: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"^logit_bias has .*; it must be .*\. \w") as error:
        SamplingParams(logit_bias={key: 1})
    assert error.value.field == "logit_bias"


@pytest.mark.parametrize("value", REFUSED_BIASES["value"])
def test_refuses_a_bias_outside_its_range(value: object) -> None:
    with pytest.raises(InvalidRequestError, match=rf"^logit_bias has 5: {re.escape(repr(value))}; it must be .*\. \w"):
        SamplingParams(logit_bias={3: 1.0, 5: value})


def test_refuses_two_biases_of_one_id() -> None:
    with pytest.raises(InvalidRequestError, match="logit_bias has id 5 twice"):
        SamplingParams(logit_bias={5: 1.0, "5": 1.0})


@pytest.mark.parametrize("field", ["stop", "bad_words"])
@pytest.mark.parametrize("text", ["emoji \ud83d", "\udcf0"])
def test_refuses_half_a_character(field: str, text: str) -> None:
    with pytest.raises(InvalidRequestError, match=rf"^{field} has a lone surrogate") as error:
        SamplingParams(**{field: ["ok", text]})
    assert error.value.field == field
    assert str(error.value).isprintable()


@pytest.mark.parametrize(("field", "most"), [("stop", 64), ("bad_words", 1000)])
def test_refuses_more_texts_than_documented(field: str, most: int) -> None:
    texts = [str(n) for n in range(most + 1)]
    assert len(getattr(SamplingParams(**{field: texts[1:]}), field)) == most
    with pytest.raises(InvalidRequestError, match=rf"^{field} has {most + 1} texts; .* at most {most} "):
        SamplingParams(**{field: texts})


@pytest.mark.parametrize("field", sorted(REFUSED))
def test_messages_stay_short(field: str) -> None:
    refused = 0
    for value in ({"x" * 10**6: "x"}, [0] * 10**5 + [10**5000], 10**5000, [""] * 10**6, "x" * 10**6):
        with contextlib.suppress(InvalidRequestError):
            SamplingParams(**{field: value})
            continue
        with pytest.raises(InvalidRequestError) as error:
            SamplingParams(**{field: value})
        assert len(str(error.value)) < 1000
        refused += 1
    assert refused >= 3


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def test_values_that_can_not_be_shown_are_refused_all_the_same() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    for field in sorted(REFUSED):
        for value in (Unshowable(), [Unshowable()], {1: Unshowable()}, nested):
            with pytest.raises(InvalidRequestError) as error:
                SamplingParams(**{field: value})
            assert error.value.field == field


@pytest.mark.parametrize("value", [Fraction(1, 10**400), np.longdouble("1e-4000")])
def test_a_limit_that_is_excluded_is_not_reached_by_rounding(value: object) -> None:
    for field in ("top_p", "repetition_penalty"):
        with pytest.raises(InvalidRequestError, match=rf"^{field} is .* above 0 "):
            SamplingParams(**{field: value})
    assert SamplingParams(min_p=value).min_p == 0.0


@pytest.mark.parametrize("field", ["top_k", "max_tokens", "min_tokens"])
def test_integers_without_a_limit_can_be_echoed(field: str) -> None:
    others = {"max_tokens": None} if field == "min_tokens" else {}
    largest = SamplingParams(**{field: 10**1000 - 1, **others})
    assert "9" * 1000 in repr(largest)
    for value in (10**1000, 10**5000):
        with pytest.raises(InvalidRequestError, match=rf"^{field} has more than 1000 digits") as error:
            SamplingParams(**{field: value, **others})
        assert error.value.field == field


@pytest.mark.parametrize("field", ["stop_token_ids", "allowed_token_ids"])
def test_a_list_without_end_is_not_read(field: str) -> None:
    assert len(getattr(SamplingParams(**{field: [7] * 2**20}), field)) == 1
    with pytest.raises(InvalidRequestError, match=rf"^{field} has more than 1048576 ids") as error:
        SamplingParams(**{field: range(10**15)})
    assert error.value.field == field


def test_min_tokens_is_at_most_max_tokens() -> None:
    assert SamplingParams(min_tokens=4, max_tokens=4).min_tokens == 4
    assert SamplingParams(min_tokens=10**9, max_tokens=None).min_tokens == 10**9
    with pytest.raises(InvalidRequestError, match=r"min_tokens is 5; max_tokens is 4.*Lower") as error:
        SamplingParams(min_tokens=5, max_tokens=4)
    assert error.value.field == "min_tokens"


def test_stop_needs_the_text() -> None:
    assert SamplingParams(stop_token_ids=[5], detokenize=False).stop_token_ids == (5,)
    with pytest.raises(InvalidRequestError, match=r"stop is given and detokenize is false.*stop_token_ids") as error:
        SamplingParams(stop="a", detokenize=False)
    assert error.value.field == "stop"


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequestError, match=r"'temprature' is no sampling parameter.*temperature") as error:
        SamplingParams(temprature=0.5)
    assert error.value.field == "temprature"
    for field in dataclasses.fields(SamplingParams):
        assert re.search(rf"\b{field.name}\b", str(error.value))


def test_positional_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="positional"):
        SamplingParams(0.5)


def test_is_frozen_and_every_field_is_tested() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().temperature = 0.5
    names = {field.name for field in dataclasses.fields(SamplingParams)}
    assert names == {*ACCEPTED, *LISTS} == set(REFUSED)
    assert set(inspect.signature(SamplingParams).parameters) == names


def test_is_a_value() -> None:
    given = {"stop": ["a"], "logit_bias": {"5": 1}, "allowed_token_ids": [5], "temperature": 0.5}
    params = SamplingParams(**given)
    assert params.record.bias_ids.tolist() == [5]
    for same in (SamplingParams(**given), copy.deepcopy(params), pickle.loads(pickle.dumps(params))):
        assert same == params
        assert hash(same) == hash(params)
    assert dataclasses.replace(params, temperature=0.5) == params
    assert dataclasses.replace(params, logit_bias={5: 2}) != params
    given["logit_bias"]["6"] = 1
    assert params.logit_bias == {5: 1.0}
    assert json.loads(json.dumps(dataclasses.asdict(params)))["logit_bias"] == {"5": 1.0}


def test_compiled_code_gets_the_same_numbers() -> None:
    record = SamplingParams(
        logit_bias={"9": 1, 3: -0.5},
        allowed_token_ids=[4, 2, 4],
        repetition_penalty=2,
        presence_penalty=0.25,
        frequency_penalty=-0.5,
        temperature=0.75,
        top_k=10**30,
        top_p=0.5,
        min_p=0.125,
        logprobs=3,
    ).record
    arrays = [each.tolist() for each in record[:3]]
    assert arrays == [[3, 9], [-0.5, 1.0], [4, 2]]
    assert [each.dtype for each in record[:3]] == [np.int32, np.float32, np.int32]
    assert record[3:] == (2.0, 0.25, -0.5, 0.75, 2**31 - 1, 0.5, 0.125, 3)
    assert SamplingParams().record.num_logprobs == -1
    tiny = np.float32(SamplingParams(repetition_penalty=1e-300).record.repetition)
    assert 0 < tiny < 1e-37


@pytest.mark.parametrize("field", ["logit_bias", "allowed_token_ids", "stop_token_ids"])
def test_ids_outside_the_vocabulary_are_refused_when_it_is_known(field: str) -> None:
    def params(*ids: int) -> SamplingParams:
        return SamplingParams(**{field: dict.fromkeys(ids, 1.0) if field == "logit_bias" else list(ids)})

    check_against_vocabulary(params(0, 99), 100)
    with pytest.raises(InvalidRequestError, match=rf"^{field} has id 100; .* from 0 to 99\. Use") as error:
        check_against_vocabulary(params(5, 100), 100)
    assert error.value.field == field
    with pytest.raises(InvalidRequestError, match=rf"^{field} has ids 100, 101, .*119, …; "):
        check_against_vocabulary(params(*range(10**4)), 100)


VLLM_0_33_0 = {  # names and defaults of the public fields of vLLM's SamplingParams, read from its source
    "n": 1,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "watermarking": None,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "seed": None,
    "stop": None,
    "stop_token_ids": None,
    "ignore_eos": False,
    "max_tokens": 16,
    "min_tokens": 0,
    "logprobs": None,
    "prompt_logprobs": None,
    "prompt_logprob_token_ids": None,
    "prompt_logprob_start": None,
    "logprob_token_ids": None,
    "flat_logprobs": False,
    "detokenize": True,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "include_stop_str_in_output": False,
    "output_kind": "CUMULATIVE",
    "stream_interval": None,
    "skip_clone": False,
    "output_text_buffer_length": 0,
    "structured_outputs": None,
    "logit_bias": None,
    "allowed_token_ids": None,
    "extra_args": None,
    "bad_words": None,
    "skip_reading_prefix_cache": None,
    "thinking_token_budget": None,
    "repetition_detection": None,
    "routed_experts_prompt_start": 0,
    "trace_decode_token_ids": None,
}


class RequestOutputKind(Enum):
    """As vLLM has it."""

    CUMULATIVE = 0
    DELTA = 1


def test_every_parameter_of_vllm_is_there_with_its_default() -> None:
    rows = parameter_rows()
    assert {row.name: row.default for row in rows} == {name: repr(value) for name, value in VLLM_0_33_0.items()}
    assert len(rows) == len(VLLM_0_33_0)
    assert SamplingParams(**VLLM_0_33_0) == SamplingParams()
    assert SamplingParams(output_kind=RequestOutputKind.CUMULATIVE) == SamplingParams()


def test_the_table_says_what_is_supported_and_what_the_limits_are() -> None:
    rows = {row.name: row for row in parameter_rows()}
    assert {name for name, row in rows.items() if row.supported} == {*ACCEPTED, *LISTS}
    assert rows["top_p"].limits == "a number above 0 and at most 1"
    assert all(row.meaning.endswith(".") and row.limits for row in rows.values())


@pytest.mark.parametrize("field", UNSUPPORTED, ids=lambda field: field.name)
def test_the_others_are_refused_by_name_unless_they_ask_for_nothing(field: object) -> None:
    for value in field.accepted:
        assert SamplingParams(**{field.name: value}) == SamplingParams()
    for value in ("DELTA", RequestOutputKind.DELTA, 7, [1], 1.0):
        with pytest.raises(
            InvalidRequestError, match=rf"^{field.name} is {re.escape(repr(value))}; it is not supported .*\. \w"
        ) as error:
            SamplingParams(**{field.name: value})
        assert error.value.field == field.name


@pytest.mark.parametrize(("name", "value"), [("prompt_logprob_start", False), ("flat_logprobs", 0), ("skip_clone", 0)])
def test_zero_and_false_are_different_values(name: str, value: object) -> None:
    with pytest.raises(InvalidRequestError, match="not supported"):
        SamplingParams(**{name: value})


def test_fresh_seeds_are_seeds_and_differ() -> None:
    seeds = {fresh_seed() for _ in range(100)}
    assert len(seeds) == 100
    assert all(0 <= SamplingParams(seed=seed).seed < 2**63 for seed in seeds)
