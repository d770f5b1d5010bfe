"""References into every keyword that has schemas: they mean what is there, as if it were written in their place."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from walks import random_answer

from cutaway.errors import InvalidRequestError
from cutaway.grammar.grammars import Grammars
from cutaway.sampling.structured_outputs import StructuredOutputsParams
from support.long import LONG
from support.small_vocabulary import JSON_BYTES

NAMES = [
    "a",
    "oneOf",
    "anyOf",
    "$ref",
    "0",
    "a/b",
    "a~b",
    "a~1b",
    "a%b",
    "a%20b",
    "é",
    "😀",
    'q"',
    "a b",
    "a#b",
    "\\",
    "",
]
LEAVES: list[dict[str, Any]] = [{"type": "integer"}, {"type": "string", "maxLength": 3}, {"type": "null"}]
WITHIN = ("properties", "patternProperties", "$defs", "definitions")
LISTS = ("prefixItems", "anyOf", "oneOf", "allOf")
Pointer = tuple[str, ...]


@st.composite
def trees(draw: st.DrawFn, depth: int) -> dict[str, Any]:
    """A schema without references, of all keywords that have schemas."""
    kinds = ["leaf"] if depth == 0 else ["object", "array", "oneOf", "anyOf", "allOf", "leaf"]
    kind, inner = draw(st.sampled_from(kinds)), trees(max(depth - 1, 0))
    if kind == "object":
        names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
        found = {"type": "object", "properties": {name: draw(inner) for name in names}, "required": names}
        if draw(st.booleans()):
            found["patternProperties"] = {"^x_[0-9]$": draw(inner)}
        found["additionalProperties"] = draw(inner | st.just(False))
        return found
    if kind == "array":
        return {"type": "array", "prefixItems": [draw(inner)], "items": draw(inner), "minItems": 2, "maxItems": 3}
    if kind == "oneOf":  # of different types
        options = [*LEAVES, *(draw(trees(depth - 1)) for _ in range(2))]
        apart = {each.get("type"): each for each in options if "type" in each}
        return {"oneOf": list(json.loads(json.dumps(draw(st.permutations(list(apart.values()))))))}
    if kind == "anyOf":
        return {"anyOf": [draw(inner), draw(inner)]}
    if kind == "allOf":
        return {"allOf": [draw(inner)]}
    return dict(draw(st.sampled_from(LEAVES)))


def places(schema: Any, way: Pointer = ()) -> Iterator[tuple[Pointer, dict[str, Any]]]:
    """Every schema within, itself first, with the keys that lead there."""
    yield way, schema
    for name, value in schema.items():
        if name in WITHIN:
            for key, each in value.items():
                yield from places(each, (*way, name, key))
        elif name in LISTS:
            for number, each in enumerate(value):
                yield from places(each, (*way, name, str(number)))
        elif name in ("items", "additionalProperties") and isinstance(value, dict):
            yield from places(value, (*way, name))


def spelt(way: Pointer, escaped: bool) -> str:
    """The pointer: percent-encoded, or as people write it, but for what would be taken for an escape."""
    keys = [key.replace("~", "~0").replace("/", "~1") for key in way]
    return "#" + "".join("/" + (quote(key, safe="") if escaped else key.replace("%", "%25")) for key in keys)


@st.composite
def with_references(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema whose leaves refer to others of its schemas, and the same with these in place."""
    root = draw(trees(3).filter(lambda tree: len(list(places(tree))) > 3))
    for name in ("$defs", "definitions"):
        root[name] = {key: draw(trees(1)) for key in draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True))}
    whole = json.loads(json.dumps(root))
    everywhere = list(places(root))
    targets = draw(st.lists(st.sampled_from([way for way, _ in everywhere if way]), min_size=1, max_size=3))
    for way, schema in everywhere:
        is_option = len(way) > 1 and way[-2] == "oneOf"  # whose type keeps it apart
        is_used = any(way[: len(target)] == target for target in targets)
        apart = [target for target in targets if target != way[: len(target)] and way != target[: len(way)]]
        if apart and schema in LEAVES and not is_option and not is_used and draw(st.booleans()):
            target = draw(st.sampled_from(apart))
            for tree, meaning in ((root, {"$ref": spelt(target, draw(st.booleans()))}), (whole, at(whole, target))):
                leaf = at(tree, way)
                leaf.clear()
                leaf.update(json.loads(json.dumps(meaning)))
    return root, whole


def at(tree: Any, way: Pointer) -> Any:
    for key in way:
        tree = tree[int(key) if isinstance(tree, list) else key]
    return tree


def problem(grammars: Grammars, schema: Any) -> str | None:
    try:
        grammars.get(StructuredOutputsParams(json=schema))
    except InvalidRequestError as error:
        return str(error)
    return None


@settings(max_examples=2000 if LONG else 60, suppress_health_check=list(HealthCheck))
@given(schemas=with_references(), seed=st.integers(0, 2**32))
def test_a_reference_is_what_it_means(grammars: Grammars, schemas: tuple[Any, Any], seed: int) -> None:
    """Whatever is taken with the meaning in place is taken with the reference, and answers follow the schema."""
    referring, whole = schemas
    refusal = problem(grammars, referring)
    assert (refusal is None) == (problem(grammars, whole) is None), refusal
    if refusal is None:
        text, ended = random_answer(grammars.get(StructuredOutputsParams(json=referring)), JSON_BYTES, seed)
        if ended:
            jsonschema.Draft202012Validator(whole).validate(json.loads(text))


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"oneOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/oneOf/0"}, "minItems": 1}]}, b"[null]"),
        (
            {
                "$defs": {"a": {"oneOf": [{"type": "string"}, {"oneOf": [{"type": "null"}, {"const": 1}]}]}},
                "type": "array",
                "prefixItems": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a/oneOf/1/oneOf/1"}],
            },
            b'["a", 1]',
        ),
        (
            {
                "type": "object",
                "properties": {"oneOf": {"oneOf": [{"type": "null"}, {"type": "integer"}]}},
                "additionalProperties": {"$ref": "#/properties/oneOf/oneOf/1"},
            },
            b'{"oneOf": null, "b": 2}',
        ),
        ({"$defs": {"Größe": {"const": 1}}, "$ref": "#/$defs/Größe"}, b"1"),
        ({"$defs": {"List[int]": {"const": 1}}, "$ref": "#/$defs/List[int]"}, b"1"),
    ],
)
def test_references_that_dangled(grammars: Grammars, schema: dict[str, Any], answer: bytes) -> None:
    jsonschema.Draft202012Validator(schema).validate(json.loads(answer))
    state = grammars.get(StructuredOutputsParams(json=schema)).start()
    for byte in answer:
        state.advance(byte)
    assert state.accepts or state.finished


@pytest.mark.parametrize(
    ("schema", "path", "why"),
    [
        (
            {"properties": {"a": {"$ref": "#/oneOf/2"}}, "oneOf": [{"type": "object"}, {"type": "null"}]},
            ".a.$ref",
            "there",
        ),
        (
            {"properties": {"a": {"$ref": "#/properties/b/default"}, "b": {"default": {"type": "null"}}}},
            ".a.$ref",
            "says nothing",
        ),
    ],
)
def test_references_that_lead_nowhere(grammars: Grammars, schema: dict[str, Any], path: str, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why) as error:
        grammars.get(StructuredOutputsParams(json=schema))
    assert (error.value.field or "").endswith(path)


def test_what_is_wrong_within_a_one_of_is_named_as_it_was_written(grammars: Grammars) -> None:
    pattern = {"type": "string", "pattern": "(?<=x)+"}
    with pytest.raises(InvalidRequestError) as error:
        grammars.get(StructuredOutputsParams(json={"oneOf": [{"type": "null"}, pattern]}))
    assert error.value.field == "structured_outputs.json.oneOf[1].pattern"
