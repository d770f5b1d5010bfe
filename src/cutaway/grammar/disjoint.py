"""Whether no value can be of two JSON schemas at once, as far as that can be seen without searching.

In: checked schemas, and their root. Out: true where it is certain. Then ``oneOf`` is ``anyOf``.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Any, Final

from cutaway.grammar.keywords import TYPES

Resolve = Callable[[Any], Any]
"""A schema, or what its ``$ref`` means where it has one."""

MOST_OPTIONS: Final = 100
MOST_STEPS: Final = 20


def all_disjoint(options: list[Any], resolve: Resolve) -> bool:
    """Whether a value can be of one of these at most."""
    if len(options) > MOST_OPTIONS:
        return False
    return all(disjoint(one, other, resolve) for one, other in combinations(options, 2))


def disjoint(one: Any, other: Any, resolve: Resolve, steps: int = MOST_STEPS) -> bool:
    """Whether no value can be of both: by their types, their values, or a property that both require."""
    one, other = resolve(one), resolve(other)
    if one is False or other is False:
        return True
    if not isinstance(one, dict) or not isinstance(other, dict) or steps == 0:
        return False
    values = [_values(each) for each in (one, other)]
    if values[0] is not None and values[1] is not None:
        return values[0].isdisjoint(values[1])
    types = _types(one) & _types(other)
    if not types:
        return True
    required = set(one.get("required", ())) & set(other.get("required", ()))
    return types == {"object"} and any(
        disjoint(_property(one, name), _property(other, name), resolve, steps - 1) for name in sorted(required)
    )


def _property(schema: dict[str, Any], name: str) -> Any:
    return schema.get("properties", {}).get(name, True)


def _values(schema: dict[str, Any]) -> frozenset[tuple[str, Any]] | None:
    """The values that there can be, none of them a list or an object; None where that isn't said."""
    given = [schema["const"]] if "const" in schema else schema.get("enum")
    if given is None or any(isinstance(each, list | dict) for each in given):
        return None
    return frozenset((_type(each), each) for each in given)


def _types(schema: dict[str, Any]) -> frozenset[str]:
    """The types that a value can have; an integer is a number."""
    given = schema.get("type", TYPES)
    types = {given} if isinstance(given, str) else set(given)
    if "const" in schema:
        types &= {_type(schema["const"]), *(["integer"] if _type(schema["const"]) == "number" else [])}
    if "enum" in schema:
        found = {_type(each) for each in schema["enum"]}
        types &= found | ({"integer"} if "number" in found else set())
    return frozenset("number" if each == "integer" else each for each in types)


def _type(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]
