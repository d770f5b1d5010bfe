"""Answers to random schemas, drawn at random: every one that ends is JSON, and valid by another validator."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from walks import random_answer

from cutaway.errors import InvalidRequestError
from cutaway.grammar.grammars import Grammars
from cutaway.sampling.structured_outputs import StructuredOutputsParams
from support.long import LONG
from support.small_vocabulary import JSON_BYTES

KEYS = st.sampled_from(["a", "b", "name", "é", "日本", 'q"uote', "back\\slash", "new\nline", "", "a b", "😀", "$ref"])
TEXTS = st.sampled_from(["", "x", "é", '"', "\\", "\u0001", "日本", "😀", "null", "a\nb"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.sampled_from([0.5, -1.25, 1e3]) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=3,
)
PATTERNS = [
    "^a+$",
    "^[a-z]{2,5}$",
    "b",
    "^(foo|bar)",
    "[0-9]{3}$",
    "^\\d{2}-\\w+$",
    "^\\S*$",
    "é|😀",
    "^a|b$",
    '^[^"]*$',
]
FORMATS = ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"]


@st.composite
def numbers(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": kind}
    value = st.integers(-50, 50) if kind == "integer" else st.integers(-200, 200).map(lambda n: n / 8)
    low = draw(st.none() | value)
    if low is not None:
        schema[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = low
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["maximum", "exclusiveMaximum"]))] = (low or 0) + draw(st.integers(0, 30))
    if kind == "integer" and draw(st.booleans()):
        schema["multipleOf"] = draw(st.integers(1, 7))
    return schema


@st.composite
def strings(draw: st.DrawFn) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    which = draw(st.sampled_from(["length", "pattern", "format", "plain"]))
    if which == "pattern":
        schema["pattern"] = draw(st.sampled_from(PATTERNS))
    if which == "format":
        schema["format"] = draw(st.sampled_from(FORMATS))
    if which in ("length", "pattern"):
        least = draw(st.integers(0, 3))
        schema.update(minLength=least, maxLength=least + draw(st.integers(0, 6)))
    return schema


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    properties = draw(st.dictionaries(KEYS, inner, max_size=3))
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if properties and draw(st.booleans()):
        schema["required"] = draw(st.lists(st.sampled_from(sorted(properties)), unique=True))
    more = draw(st.none() | st.booleans() | inner)
    if more is not None:
        schema["additionalProperties"] = more
    if draw(st.integers(0, 3)) == 0:
        schema["patternProperties"] = {"^x_": draw(inner)}
    if draw(st.integers(0, 3)) == 0:
        schema[draw(st.sampled_from(["minProperties", "maxProperties"]))] = draw(st.integers(0, 3))
    return schema


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array"}
    if draw(st.booleans()):
        schema["prefixItems"] = draw(st.lists(inner, min_size=1, max_size=2))
    if draw(st.booleans()):
        schema["items"] = draw(inner | st.booleans())
    least = draw(st.integers(0, 2))
    schema.update(minItems=least, maxItems=least + draw(st.integers(0, 3)))
    return schema


def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        several.map(lambda each: {"anyOf": each}),
        several.map(lambda each: {"oneOf": each}),
        st.lists(inner, min_size=1, max_size=2).map(lambda each: {"allOf": each}),
        objects(inner),
        arrays(inner),
        st.just({"$ref": "#/$defs/tree"}),
        inner.map(
            lambda each: {**each, "title": "t", "description": "d", "default": 1} if isinstance(each, dict) else each
        ),
    )


SIMPLE = st.one_of(
    strings(),
    numbers("integer"),
    numbers("number"),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": ["string", "null"]}, True]),
    st.lists(VALUES, min_size=1, max_size=3).map(lambda values: {"enum": values}),
    VALUES.map(lambda value: {"const": value}),
)
SCHEMAS: st.SearchStrategy[Any] = st.recursive(SIMPLE, combined, max_leaves=5).filter(
    lambda each: isinstance(each, dict)
)
TREE = {
    "type": "object",
    "properties": {
        "value": {"type": "integer"},
        "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
    },
    "required": ["value"],
    "additionalProperties": False,
}


def check_answer(text: bytes, schema: Any) -> None:
    """JSON of RFC 8259, in UTF-8, and valid."""
    value = json.loads(text.decode("utf-8"), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    formats = jsonschema.FormatChecker(["email", "ipv4", "ipv6", "uuid"])
    jsonschema.Draft202012Validator(schema, format_checker=formats).validate(value)


@settings(max_examples=2000 if LONG else 50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(schema=SCHEMAS, seed=st.integers(0, 2**32))
def test_every_answer_to_a_random_schema_is_valid(grammars: Grammars, schema: dict[str, Any], seed: int) -> None:
    schema = {**schema, "$defs": {"tree": TREE}}
    try:
        grammar = grammars.get(StructuredOutputsParams(json=schema))
    except InvalidRequestError:  # it can't be satisfied, or not proved to be enforced
        assume(False)
    text, ended = random_answer(grammar, JSON_BYTES, seed)
    assume(ended)
    check_answer(text, schema)
