"""Whether no value can be of two JSON schemas at once, as far as that can be seen in a bounded search.

In: checked schemas, and their root. Out: true where it is certain. Then ``oneOf`` is ``anyOf``.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Any, Final

from cutaway.grammar.keywords import TYPES

Resolve = Callable[[Any], Any]
"""A schema, or what its ``$ref`` means where it has one."""

MOST_OPTIONS: Final = 100
MOST_STEPS: Final = 50_000
"""Pairs of schemas that one search looks at, each some microseconds."""
NAMES_OF_A_STEP: Final = 16
"""Values of an enum, or names of properties, that take as long as a pair."""


class DisjointSearch:
    """Looks at pairs of schemas, until its steps are spent: from then on nothing is shown to be disjoint."""

    def __init__(self, resolve: Resolve, steps: int = MOST_STEPS) -> None:
        """steps: for all that it is asked. The schemas must live, and stay, as long as it does."""
        self.steps_left = steps
        self._resolve = resolve

    def all_disjoint(self, options: list[Any]) -> bool:
        """Whether a value can be of one of these at most."""
        if len(options) > MOST_OPTIONS:
            return False
        return all(self.disjoint(one, other) for one, other in combinations(options, 2))

    def disjoint(self, one: Any, other: Any) -> bool:
        """Whether no value can be of both: by their types, their values, or a property that both require.

        Two objects are disjoint where the schemas of such a property are. So one disjoint pair among all that are
        reached from here is enough, and each is looked at once, also where schemas refer to themselves.
        """
        waiting, seen = [(one, other)], set()
        while waiting:
            pair = self._resolve(waiting[-1][0]), self._resolve(waiting.pop()[1])
            known = (id(pair[0]), id(pair[1]))
            if known in seen:
                continue
            seen.add(known)
            self.steps_left -= 1 + sum(map(_size, pair)) // NAMES_OF_A_STEP
            if self.steps_left < 0:
                return False
            found = _required_by_both(*pair)
            if found is None:
                return True
            waiting += [(_property(pair[0], name), _property(pair[1], name)) for name in reversed(found)]
        return False


def _required_by_both(one: Any, other: Any) -> list[str] | None:
    """The properties that both require of an object; None where the two are seen to be disjoint without these."""
    if one is False or other is False:
        return None
    if not isinstance(one, dict) or not isinstance(other, dict):
        return []
    values = [_values(each) for each in (one, other)]
    if values[0] is not None and values[1] is not None:
        return None if values[0].isdisjoint(values[1]) else []
    types = _types(one) & _types(other)
    if not types:
        return None
    required = set(one.get("required", ())) & set(other.get("required", ()))
    return sorted(required) if types == {"object"} else []


def _size(schema: Any) -> int:
    """Values and names that are looked at."""
    return sum(len(schema.get(name, ())) for name in ("enum", "required")) if isinstance(schema, dict) else 0


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
