"""Schemas that are said to be disjoint are: no value of many is of both. And what tagged unions need is seen."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import InvalidRequestError
from cutaway.grammar.disjoint import MOST_STEPS, DisjointSearch
from cutaway.grammar.grammars import Grammars
from cutaway.grammar.json_schema import CheckedSchema
from cutaway.sampling.structured_outputs import StructuredOutputsParams
from support.patience import finishes

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


def disjoint(one: Any, other: Any) -> bool:
    return DisjointSearch(resolve).disjoint(one, other)


def valid(value: Any, schema: Any) -> bool:
    if isinstance(schema, dict):
        schema = {**schema, "$defs": {"tagged": TAGGED}}
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


@given(one=SCHEMAS, other=SCHEMAS)
def test_no_value_is_of_two_disjoint_schemas(one: Any, other: Any) -> None:
    if disjoint(one, other):
        assert [value for value in VALUES if valid(value, one) and valid(value, other)] == []
    assert disjoint(one, other) == disjoint(other, one)


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
    assert disjoint(one, other) is expected
    assert DisjointSearch(resolve).all_disjoint([one, other]) is expected
    assert not DisjointSearch(resolve).all_disjoint([one, other, one]) or one is False


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


def to_itself(name: str, **more: Any) -> dict[str, Any]:
    """An object whose three required properties are objects of the same kind."""
    properties = {key: {"$ref": f"#/$defs/{name}"} for key in "xyz"}
    return {"type": "object", "properties": {**properties, **more}, "required": [*properties, *more]}


def one_of(defs: dict[str, Any]) -> dict[str, Any]:
    """Either of them."""
    return {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in defs], "$defs": defs}


def looked_at(one: Any, other: Any, defs: dict[str, Any]) -> tuple[bool, int]:
    """What is found, and how many steps it takes."""
    search = DisjointSearch(lambda schema: defs.get(schema.get("$ref", "")[8:], schema))
    return search.disjoint(one, other), MOST_STEPS - search.steps_left


def test_schemas_that_refer_to_themselves_are_looked_at_once() -> None:
    defs = {"A": to_itself("A"), "B": to_itself("B")}
    assert looked_at(defs["A"], defs["B"], defs) == (False, 1)
    checked = finishes(lambda: CheckedSchema(one_of(defs), "schema"))
    assert "oneOf" in checked.root.schema
    tagged = {name: to_itself(name, tag={"const": name}) for name in "AB"}
    assert looked_at(tagged["A"], tagged["B"], tagged)[0] is True
    assert "anyOf" in CheckedSchema(one_of(tagged), "schema").root.schema


def test_the_search_ends_with_its_steps() -> None:
    """Rings of 500 and of 499 objects make 249,500 pairs, of which the last is disjoint."""
    defs: dict[str, Any] = {}
    for name, count in (("a", 500), ("b", 499)):
        for number in range(count):
            after = {"$ref": f"#/$defs/{name}{(number + 1) % count}"}
            defs[f"{name}{number}"] = {"type": "object", "properties": {"next": after}, "required": ["next"]}
    defs["a499"] = {
        **defs["a499"],
        "required": ["next", "end"],
        "properties": {"end": {"const": 1}, "next": {"$ref": "#/$defs/a0"}},
    }
    defs["b498"] = {
        **defs["b498"],
        "required": ["next", "end"],
        "properties": {"end": {"const": 2}, "next": {"$ref": "#/$defs/b0"}},
    }
    found, steps = looked_at(defs["a0"], defs["b0"], defs)
    assert (found, steps) == (False, MOST_STEPS + 1)
    search = DisjointSearch(lambda schema: schema, 1)
    assert search.disjoint({"type": "string"}, {"type": "null"}) is True
    assert search.disjoint({"type": "string"}, {"type": "null"}) is False
    many: dict[str, Any] = {"enum": list(range(16_000))}
    assert looked_at(many, many, {}) == (False, 1 + 32_000 // 16)
