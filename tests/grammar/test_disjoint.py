"""Schemas that are said to be disjoint are: no value of many is of both. And what tagged unions need is seen."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import InvalidRequestError
from cutaway.grammar.disjoint import all_disjoint, disjoint
from cutaway.grammar.grammars import Grammars
from cutaway.sampling.structured_outputs import StructuredOutputsParams

SCALARS: list[Any] = [None, True, False, 0, 1, 1.0, 1.5, -2, "", "a", "b", "1"]
VALUES: list[Any] = [
    *SCALARS, [], [1], {}, *({"k": each} for each in SCALARS), {"k": "a", "m": 1}, {"m": "a"}, {"k": {"k": "a"}},
]  # fmt: skip
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
SIMPLE: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    TYPES.map(lambda kind: {"type": kind}),
    st.lists(TYPES, min_size=1, max_size=3).map(lambda kinds: {"type": kinds}),
    st.sampled_from(VALUES).map(lambda value: {"const": value}),
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=3).map(lambda values: {"enum": values}),
    st.tuples(TYPES, st.sampled_from(SCALARS)).map(lambda both: {"type": both[0], "const": both[1]}),
    st.just({"$ref": "#/$defs/tagged"}),
    st.just({"minLength": 1}),
)
SCHEMAS = st.recursive(
    SIMPLE,
    lambda inner: st.builds(
        lambda kind, k, m, required: {**kind, "properties": {"k": k, "m": m}, "required": required},
        st.sampled_from([{}, {"type": "object"}]),
        inner,
        inner,
        st.sampled_from([[], ["k"], ["m"], ["k", "m"], ["other"]]),
    ),
    max_leaves=4,
)
TAGGED = {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]}


def resolve(schema: Any) -> Any:
    return TAGGED if isinstance(schema, dict) and "$ref" in schema else schema


def valid(value: Any, schema: Any) -> bool:
    if isinstance(schema, dict):
        schema = {**schema, "$defs": {"tagged": TAGGED}}
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


@given(one=SCHEMAS, other=SCHEMAS)
def test_no_value_is_of_two_disjoint_schemas(one: Any, other: Any) -> None:
    if disjoint(one, other, resolve):
        assert [value for value in VALUES if valid(value, one) and valid(value, other)] == []
    assert disjoint(one, other, resolve) == disjoint(other, one, resolve)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"type": "string"}, {"type": "integer"}, True),
        ({"type": "number"}, {"type": "integer"}, False),
        ({"const": 1}, {"const": 1.0}, False),
        ({"const": 1}, {"const": True}, True),
        ({"enum": ["a", "b"]}, {"enum": ["b", "c"]}, False),
        ({"enum": ["a", "b"]}, {"enum": ["c"]}, True),
        ({"const": [1]}, {"const": [2]}, False),  # not looked into
        ({"$ref": "#/$defs/tagged"}, {**TAGGED, "properties": {"k": {"const": "b"}}}, True),
        ({"$ref": "#/$defs/tagged"}, {**TAGGED, "properties": {"k": {"const": "b"}}, "required": []}, False),
        ({}, {"type": "null"}, False),
        (False, {}, True),
    ],
)
def test_what_is_seen(one: Any, other: Any, expected: bool) -> None:
    assert disjoint(one, other, resolve) is expected
    assert all_disjoint([one, other], resolve) is expected
    assert not all_disjoint([one, other, one], resolve) or one is False


@pytest.mark.parametrize(
    "options",
    [
        [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}],
        [{"type": "number"}, {"type": "integer"}],
        [TAGGED, {**TAGGED, "required": []}],
        [{"type": "string"}, {"type": "string", "maxLength": 3}],
    ],
)
def test_one_of_schemas_that_overlap_is_refused(grammars: Grammars, options: list[Any]) -> None:
    with pytest.raises(InvalidRequestError, match="may apply at once") as error:
        grammars.get(StructuredOutputsParams(json={"oneOf": options}))
    assert error.value.field == "structured_outputs.json.oneOf"
