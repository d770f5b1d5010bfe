"""Which schemas are refused, by keyword and path, and which are not; what the tables of keywords promise."""

import json
import re
from typing import Any

import pytest
from walks import after, random_answer

from cutaway.errors import InvalidRequestError
from cutaway.grammar.grammars import Grammars
from cutaway.grammar.json_schema import ENFORCED, MOST_DEPTH, MOST_LEVELS, MOST_PROPERTIES, CheckedSchema
from cutaway.grammar.keywords import ANNOTATIONS, FORMATS, REFUSED, ROOT_ANNOTATIONS
from cutaway.sampling.structured_outputs import StructuredOutputsParams
from support.small_vocabulary import JSON_BYTES

ROOT = "structured_outputs.json"
ESCAPING_NOTHING = ["\\", "^a\\", "a\\\\\\"]  # one backslash, or three, at the end
WRONG: dict[str, list[Any]] = {
    "type": ["text", 5, [], ["string", "int"], None, {}],
    "enum": [[], "a", None, {}],
    "anyOf": [[], {}, None],
    "oneOf": [[], {}, None],
    "allOf": [[], {}, None],
    "$ref": ["#/$defs/missing", "other.json", "http://example.com/a", "#anchor", 5, "#/$defs/x/0"],
    "$defs": [[], 5],
    "definitions": [[], 5],
    "properties": [[], None, "a", {str(n): True for n in range(MOST_PROPERTIES + 1)}],
    "patternProperties": [[], None, {"^a\\": True}],
    "additionalProperties": [[], None, "a", 0],
    "required": ["a", [1], None, {}],
    "minProperties": [-1, 1.5, "1", True, 2**31, 3, float(10**20)],
    "maxProperties": [-1, 1.5, "1", True],
    "items": [[{"type": "string"}], None, 5],
    "prefixItems": [[], {}, None],
    "minItems": [-1, 1.5, "1", True, 10**400],
    "maxItems": [-1, 1.5, "1", True],
    "minLength": [-1, 1.5, "1", True],
    "maxLength": [-1, 1.5, "1", True],
    "pattern": [5, None, "(?<=x)+", "^(?!a)b", r"(a)\1", "(", "[", "*", "a{2,1}", "\\p{Nonsense}", *ESCAPING_NOTHING],
    "format": ["idn-email", "regex", "", 5, None],
    "minimum": ["1", True, None, 10**309, -(10**400)],
    "maximum": ["1", True, None, 10**309, -(10**400)],
    "exclusiveMinimum": ["1", True, None, 10**309, -(10**400)],
    "exclusiveMaximum": ["1", True, None, 10**309, -(10**400)],
    "multipleOf": [0, -1, "1", True, 10**400],
}
TYPE_OF = {
    "Properties": "object", "properties": "object", "required": "object", "tems": "array", "Length": "string",
    "pattern": "string", "format": "string", "imum": "number", "multipleOf": "number",
}  # fmt: skip


@pytest.mark.parametrize("pattern", ESCAPING_NOTHING)
def test_a_backslash_that_escapes_nothing(grammars: Grammars, pattern: str) -> None:
    """Behind it llguidance would put something of its own, and escape that."""
    with pytest.raises(InvalidRequestError, match="escapes nothing") as error:
        grammars.get(StructuredOutputsParams(regex=pattern))
    assert error.value.field == "structured_outputs.regex"
    assert "escapes nothing" in str(refusal(grammars, {"type": "string", "pattern": pattern}))
    grammars.get(StructuredOutputsParams(regex=f"{pattern}\\"))
    grammars.get(StructuredOutputsParams(json={"type": "string", "pattern": f"{pattern}\\"}))


def schema_with(keyword: str, value: Any) -> dict[str, Any]:
    """A schema whose type is that to which the keyword speaks."""
    kind = next((kind for part, kind in TYPE_OF.items() if part in keyword), None)
    return {**({"type": kind} if kind else {}), keyword: value}


def refusal(grammars: Grammars, schema: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as error:
        grammars.get(StructuredOutputsParams(json=schema))
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 2000
    return error.value


def test_each_enforced_keyword_has_wrong_values() -> None:
    assert set(WRONG) == set(ENFORCED) - {"const"}


@pytest.mark.parametrize(("keyword", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_value_is_refused_by_keyword_and_path(grammars: Grammars, keyword: str, value: Any) -> None:
    inner = schema_with(keyword, value)
    for schema, path in (
        ({**inner, "description": "d"}, f"{ROOT}.{keyword}"),
        (
            {"type": "object", "properties": {"tags": {"type": "array", "items": inner}}},
            f"{ROOT}.properties.tags.items.{keyword}",
        ),
        ({"anyOf": [{"type": "null"}, inner]}, f"{ROOT}.anyOf[1].{keyword}"),
    ):
        found = refusal(grammars, schema)
        assert found.field == path
        assert str(found).startswith(path)


@pytest.mark.parametrize("keyword", REFUSED)
def test_what_can_t_be_enforced_is_refused_by_keyword_and_path(grammars: Grammars, keyword: str) -> None:
    nothing, instead = REFUSED[keyword]
    value = {"type": "string"} if nothing is None else (not nothing)
    found = refusal(grammars, {"type": "object", "properties": {"tags": {keyword: value}}})
    assert found.field == f"{ROOT}.properties.tags{'.' if keyword != '$' else ''}{keyword}"
    assert re.search(rf"{re.escape(keyword)} can't be enforced\. {re.escape(instead)}$", str(found))
    if nothing is not None:
        grammars.get(StructuredOutputsParams(json={"type": "object", "properties": {"tags": {keyword: nothing}}}))


@pytest.mark.parametrize("keyword", ["minLenght", "Type", "divisibleBy", "foo", "minItem", "xguidance", "$Ref", ""])
def test_an_unknown_keyword_is_refused(grammars: Grammars, keyword: str) -> None:
    found = refusal(grammars, {"type": "object", "properties": {"a": {"type": "string", keyword: 3}}})
    assert found.field == (f"{ROOT}.properties.a.{keyword}" if keyword else f'{ROOT}.properties.a[""]')
    assert "is no keyword" in str(found)


@pytest.mark.parametrize("keyword", sorted(ANNOTATIONS))
def test_annotations_say_nothing(grammars: Grammars, keyword: str) -> None:
    grammars.get(StructuredOutputsParams(json={"type": "string", keyword: "anything", "x-order": {"not": 3}}))


@pytest.mark.parametrize("keyword", sorted(ROOT_ANNOTATIONS))
def test_what_says_something_of_the_whole_is_refused_within(grammars: Grammars, keyword: str) -> None:
    grammars.get(StructuredOutputsParams(json={"type": "string", keyword: "http://example.com/unknown"}))
    assert refusal(grammars, {"items": {keyword: "a"}}).field == f"{ROOT}.items.{keyword}"


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"properties": {"a.b": {"not": {}}}}, 'properties["a.b"].not'),
        ({"properties": {"é": {"properties": {'"': {"not": {}}}}}}, 'properties.é.properties["\\""].not'),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"not": {}}}}, "$defs.x.not"),
        (
            {"items": {"$ref": "#/definitions/x"}, "definitions": {"x": {"prefixItems": [{"if": {}}]}}},
            "definitions.x.prefixItems[0].if",
        ),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "string", "pattern": "(?<=x)"}}}, "$defs.x.pattern"),
        ({"type": "string", "pattern": "^a$", "format": "date"}, "pattern"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "additionalProperties"),
        ({"type": "object", "properties": {"a": {}}, "minProperties": 1}, "minProperties"),
        ({"type": "object", "additionalProperties": {"type": "null"}, "minProperties": 2}, "minProperties"),
        ({"type": "object", "patternProperties": {"^a": {}, "b$": {}}}, "patternProperties"),
        ({"properties": {"a": {"oneOf": [{"type": "number"}, {"type": "integer"}]}}}, "properties.a.oneOf"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"$ref": "#/$defs/x"}}}, "$defs.x.$ref"),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, "anyOf[0].$ref"),
        ({"type": "number", "minimum": 1, "maximum": 0}, "minimum"),
        ({"const": {"a": ["\u0001"]}}, "const"),
        ({"enum": ["ok", "\x7f"]}, "enum"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength"),
        ({"properties": {"a": {"type": "string"}, "b": {"minimum": 10**400}}}, "properties.b.minimum"),
        ({"properties": {"a": {"type": "null"}, "b": {"enum": [1, {"c": [-(10**400)]}]}}}, "properties.b.enum[1].c[0]"),
        ({"$defs": {"unused": {"const": 10**400}}}, "$defs.unused.const"),
    ],
)  # fmt: skip
def test_the_path_is_that_of_the_innermost_fault(grammars: Grammars, schema: Any, path: str) -> None:
    assert refusal(grammars, schema).field == f"{ROOT}.{path}"


@pytest.mark.parametrize(
    ("schema", "valid"),
    [
        # From faults of other engines: anchored, escaped, unanchored and class patterns; recursion.
        ({"type": "string", "pattern": r"^hello there indeed\!$"}, '"hello there indeed!"'),
        ({"type": "object", "properties": {"id": {"type": "string", "pattern": r"^\d+$"}}}, '{"id":"123"}'),
        ({"type": "string", "pattern": r"\S"}, '" x "'),
        (
            {
                "type": "object",
                "properties": {
                    "childresources": {"type": "array", "items": {"$ref": "#"}},
                    "PathPart": {"type": "string"},
                },
            },
            '{"childresources":[{"childresources":[],"PathPart":"{proxy+}"}]}',
        ),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "$id": "urn:x", "type": "integer"}, "5"),
        ({"$ref": "#/definitions/a%20b", "definitions": {"a b": {"type": "integer"}}}, "5"),
        ({"$ref": "#/$defs/a~1b~0", "$defs": {"a/b~": {"type": "null"}, "unused": {"not": {}}}}, "null"),
        ({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "discriminator": {"propertyName": "k"},
          "$defs": {"a": {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
                    "b": {"type": "object", "properties": {"k": {"enum": ["b", "c"]}}, "required": ["k"]}}},
         '{"k":"b"}'),
        ({"anyOf": [{"type": "integer"}, {"$ref": "#"}]}, "7"),
        ({"items": {"type": "integer"}, "prefixItems": [False]}, "[]"),
    ],
)  # fmt: skip
def test_what_can_be_enforced_is_taken(grammars: Grammars, schema: dict[str, Any], valid: str) -> None:
    assert after(grammars.get(StructuredOutputsParams(json=schema)), valid.encode()).accepts


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_formats_are_enforced(grammars: Grammars, name: str) -> None:
    good = {
        "date-time": "2024-02-28T12:00:00Z", "time": "12:00:00Z", "date": "2024-02-28", "duration": "P1D",
        "email": "a@b.org", "hostname": "b.org", "ipv4": "127.0.0.1", "ipv6": "::1",
        "uuid": "01234567-89ab-cdef-0123-456789abcdef", "uri": "http://b.org/x",
    }[name]  # fmt: skip
    grammar = grammars.get(StructuredOutputsParams(json={"type": "string", "format": name}))
    assert after(grammar, f'"{good}"'.encode()).finished
    with pytest.raises(InvalidRequestError):
        after(grammar, b'"! !"')


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
        {"type": "object", "patternProperties": {"^x_": {"type": "string"}}, "additionalProperties": {"type": "null"}},
    ],
)
def test_a_name_has_one_spelling(grammars: Grammars, schema: dict[str, Any]) -> None:
    r"""Else {"\u0061": "x"} would get past the schema of a."""
    state = after(grammars.get(StructuredOutputsParams(json=schema)), b'{"\\')
    with pytest.raises(InvalidRequestError):
        state.advance(ord("u"))


@pytest.mark.parametrize(
    "pattern", ['^[^"]*$', "^[^\\\\]*$", r"^[^\x22]$", "^[^!-/]$", r"^\p{L}*$", "^[é-ü]*$", '^(?i:[^"])$']
)
def test_a_pattern_excludes_characters_by_their_escapes_too(grammars: Grammars, pattern: str) -> None:
    for schema in (
        {"type": "string", "pattern": pattern},
        {"type": "array", "prefixItems": [{"type": "string", "pattern": pattern}]},
        {"type": "object", "patternProperties": {pattern: {"type": "null"}}, "additionalProperties": False},
    ):
        grammar = grammars.get(StructuredOutputsParams(json=schema))
        begin = {"string": b'"', "array": b'["', "object": b'{"'}[str(schema["type"])]
        for escaped in (b'\\"', b"\\\\"):
            with pytest.raises(InvalidRequestError):
                after(grammar, begin + escaped)


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels - 1):
        schema = {"type": "array", "items": schema}
    return schema


def chained(links: int) -> dict[str, Any]:
    defs: dict[str, Any] = {"d0": {"type": "string"}}
    for n in range(1, links):
        defs[f"d{n}"] = {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{n - 1}"}}}
    return {"$ref": f"#/$defs/d{links - 1}", "$defs": defs}


def test_the_deepest_schemas_that_are_taken_are_compiled(grammars: Grammars) -> None:
    for schema in (nested(MOST_LEVELS), chained(MOST_DEPTH // 2 - 1)):
        text, _ = random_answer(grammars.get(StructuredOutputsParams(json=schema)), JSON_BYTES, 0, most=30)
        assert text[:1] in b'["{'


@pytest.mark.parametrize("schema", [nested(MOST_LEVELS + 1), nested(300), chained(MOST_DEPTH // 2 + 2)])
def test_deeper_ones_are_refused(grammars: Grammars, schema: dict[str, Any]) -> None:
    assert "nested too deeply" in str(refusal(grammars, schema))


def test_depth_beyond_python_s_own_is_refused() -> None:
    for text in ('{"items":' * 10_000 + "{}" + "}" * 10_000, '{"const":' + "[" * 50_000 + "]" * 50_000 + "}"):
        with pytest.raises(InvalidRequestError, match="nested too deeply"):
            StructuredOutputsParams(json=text)


def test_a_checked_schema_has_nothing_but_what_is_enforced() -> None:
    schema = {
        "type": "array",
        "title": "t",
        "uniqueItems": False,
        "items": {"description": "d", "x-y": 1, "nullable": False},
    }
    checked = CheckedSchema(json.loads(json.dumps(schema)), "p")
    assert checked.root.schema == {"type": "array", "items": {}}


def test_a_schema_that_is_within_another_and_a_target_too(grammars: Grammars) -> None:
    """It is met twice, and its own reference is read once."""
    properties = {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/properties/a"}}
    schema = {"type": "object", "properties": properties, "$defs": {"x": {"type": "string"}}}
    grammar = grammars.get(StructuredOutputsParams(json={**schema, "required": ["a", "b"]}))
    assert after(grammar, b'{"a": "1", "b": "2"}').finished
    with pytest.raises(InvalidRequestError):
        after(grammar, b'{"a": "1", "b": 2')
