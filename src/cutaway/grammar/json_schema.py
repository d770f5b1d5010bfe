"""A JSON schema, checked before it is compiled: what can't be enforced is refused by keyword and path.

In: a schema as JSON. Out: the same without what says nothing about an answer. Only what the root reaches is looked at,
through ``$ref`` too. The rules are those of draft 2020-12.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from cutaway.errors import InvalidRequestError
from cutaway.grammar.disjoint import DisjointSearch
from cutaway.grammar.keywords import ANNOTATIONS, FORMATS, REFUSED, ROOT_ANNOTATIONS, TYPES
from cutaway.sampling.params_checks import is_number, shown

MOST_LEVELS: Final = 50
"""Schemas within schemas, from the root or from the target of a reference."""
MOST_DEPTH: Final = 1000
"""The same along references: each level takes some of the compiler's stack."""
DEFINED: Final = "root"
"""The name of the root among the definitions."""
MOST_PROPERTIES: Final = 1000
"""Of one object: the time to compile grows with the square."""

EXCLUDES: Final = r"\[\^|\(\?|\\[pPxuU]|[^\x00-\x7f]|&&|--|~~"
"""What in a pattern may make a set with characters beyond ASCII and without a quote or a backslash, as ``[^"]``. Such a
set is one of raw characters to llguidance 1.9: it lets these two in by their escapes."""
NEVER_WRITTEN: Final = "[\\x00-\\x07\\x0b\\x0e-\\x1f\\x7f]"
"""Characters that JSON only has as \\uXXXX, which grammars leave out."""


class Place(NamedTuple):
    """A schema within the whole one."""

    schema: Any
    path: str
    level: int  # from the root, or from the target of a reference


class Reference(NamedTuple):
    """A schema with ``$ref``, and what it means."""

    schema: dict[str, Any]
    given: str
    path: str
    target: Place


class CheckedSchema:
    """A schema that has been checked, with references of another form: ``schema`` has its root as a definition, so that
    each schema within it can be compiled alone, too.
    """

    def __init__(self, root: dict[str, Any], path: str) -> None:
        """Refuses what can't be enforced; ``root`` is changed. path: of the root, for errors.

        Raises InvalidRequestError, whose field is the path of the keyword.
        """
        for name in ROOT_ANNOTATIONS:
            root.pop(name, None)
        self.root = Place(root, path, 1)
        self.excludes = False
        """Whether a pattern may exclude characters by naming others (``EXCLUDES``)."""
        self._references: dict[int, Reference] = {}  # by the schema's id
        self._rewritten: set[int] = set()  # schemas whose oneOf is anyOf now, by their ids
        levels = {id(root): 1}  # of the root and of each target: how many are within
        waiting = [(id(root), self.root)]
        choices: list[dict[str, Any]] = []  # schemas with oneOf
        while waiting:
            origin, place = waiting.pop()
            levels[origin] = max(levels[origin], place.level)
            if place.level > MOST_LEVELS or sum(levels.values()) > MOST_DEPTH:
                raise _too_deep(place)
            if isinstance(place.schema, bool):
                continue
            if not isinstance(place.schema, dict):
                raise _wrong(place.path, place.schema, "a schema: an object, true or false")
            for name in list(place.schema):
                _check_keyword(place.schema, name, place.path + step(name))
            _check_together(place)
            patterns = [place.schema.get("pattern", ""), *place.schema.get("patternProperties", ())]
            self.excludes |= any(re.search(EXCLUDES, each) for each in patterns)
            waiting += [(origin, each) for each in reversed(list(inside(place)))]
            if "oneOf" in place.schema:
                choices.append(place.schema)
            if "$ref" in place.schema:
                target = self._refer(place)
                if id(target.schema) not in levels:
                    levels[id(target.schema)] = 1
                    waiting.append((id(target.schema), target))
        _check_numbers(self.root)
        search = DisjointSearch(self._resolved)
        for schema in choices:
            if "anyOf" not in schema and search.all_disjoint(schema["oneOf"]):
                schema["anyOf"] = schema.pop("oneOf")
                self._rewritten.add(id(schema))
        for each in self._references.values():
            each.schema["$ref"] = self._reference(each)

    def alone(self, place: Place) -> Any:
        """The schema at a place, to be compiled alone."""
        if isinstance(place.schema, bool):
            return place.schema
        return {**place.schema, "$defs": {DEFINED: self.root.schema}}

    def within(self, place: Place) -> list[Place]:
        """The schemas that a place is made of."""
        if isinstance(place.schema, bool):
            return []
        reference = self._references.get(id(place.schema))
        ours, written = f"{place.path}.anyOf", self.path_of(place, "anyOf")
        found = [
            each._replace(path=written + each.path.removeprefix(ours)) if each.path.startswith(f"{ours}[") else each
            for each in inside(place)
        ]
        return [*found, *([] if reference is None else [reference.target])]

    def path_of(self, place: Place, name: str) -> str:
        """The path of a keyword of a place, by the name that it was given."""
        given = "oneOf" if name == "anyOf" and id(place.schema) in self._rewritten else name
        return place.path + step(given)

    def _refer(self, place: Place) -> Place:
        """The place that a reference means. A schema is met again where it is within another and a target, too."""
        known = self._references.get(id(place.schema))
        if known is not None:
            return known.target
        given, path = place.schema["$ref"], f"{place.path}.$ref"
        target, way = _target(self.root.schema, given, path)
        found = Place(target, self.root.path + way, 1)
        self._references[id(place.schema)] = Reference(place.schema, given, path, found)
        return found

    def _reference(self, reference: Reference) -> str:
        """The same by way of the definition, as the schema is now, in a spelling that every reader has: a name may have
        any character, and llguidance takes none that a URI doesn't have.
        """
        node: Any = self.root.schema
        found = f"#/$defs/{DEFINED}"
        for key in _keys(reference.given):
            if key == "oneOf" and id(node) in self._rewritten:
                key = "anyOf"
            if isinstance(node, dict) and key not in node:
                raise _wrong(reference.path, reference.given, "a pointer to a schema, not into what says nothing")
            node = node[int(key) if isinstance(node, list) else key]
            found += "/" + quote(key.replace("~", "~0").replace("/", "~1"), safe="", errors="replace")
        return found

    def _resolved(self, schema: Any) -> Any:
        for _ in range(MOST_LEVELS):
            if not isinstance(schema, dict) or "$ref" not in schema or len(schema) > 1:
                return schema
            schema = self._references[id(schema)].target.schema
        return True


def inside(place: Place) -> Iterator[Place]:
    """The schemas right within a checked one, but for those that are only there to be referred to."""
    for name, value in place.schema.items():
        path = f"{place.path}.{name}"
        if name in ("additionalProperties", "items"):
            yield Place(value, path, place.level + 1)
        elif name in ("properties", "patternProperties"):
            for key, each in value.items():
                yield Place(each, path + step(key), place.level + 1)
        elif name in ("anyOf", "oneOf", "allOf", "prefixItems"):
            for number, each in enumerate(value):
                yield Place(each, f"{path}[{number}]", place.level + 1)


def step(key: str) -> str:
    """A key as a step of a path."""
    return f".{key}" if re.fullmatch(r"[\w$-]{1,100}", key) else f"[{json.dumps(key[:100], ensure_ascii=False)}]"


def ends_in_escape(pattern: str) -> bool:
    """Whether a regular expression ends in a backslash that escapes nothing. To llguidance it would escape what it puts
    behind the expression, and the answer would be of another form.
    """
    return (len(pattern) - len(pattern.rstrip("\\"))) % 2 == 1


def _too_deep(place: Place) -> InvalidRequestError:
    return InvalidRequestError(
        f"{place.path} is nested too deeply: more than {MOST_LEVELS} schemas are within each other, or more than "
        f"{MOST_DEPTH} along references. Flatten the schema.",
        place.path,
    )


def _wrong(path: str, value: object, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"{path} is {shown(value)}; it must be {what}.", path)


def _check_keyword(schema: dict[str, Any], name: str, path: str) -> None:
    """Check a keyword's value, or take it out where it says nothing."""
    value = schema[name]
    if name in ENFORCED:
        what, check = ENFORCED[name]
        if not check(value):
            raise _wrong(path, value, what)
        for pattern in [value] if name == "pattern" else value if name == "patternProperties" else ():
            if ends_in_escape(pattern):
                raise _wrong(path, pattern, "a regular expression: a backslash at its end escapes nothing")
        return
    if name in REFUSED:
        nothing, instead = REFUSED[name]
        if nothing is None or value is not nothing:
            raise InvalidRequestError(f"{path} is {shown(value)}; {name} can't be enforced. {instead}", path)
    elif name not in ANNOTATIONS and not name.startswith("x-"):
        raise InvalidRequestError(
            f"{path} is {shown(value)}; {shown(name)} is no keyword of JSON schemas (draft 2020-12) that could be "
            "enforced. Correct it or leave it out.",
            path,
        )
    del schema[name]


def _check_together(place: Place) -> None:
    """What can't be enforced because of its neighbours."""
    schema = place.schema
    for name in {"enum", "const"} & schema.keys():
        for text in _texts_within(schema[name]):
            if found := re.search(NEVER_WRITTEN, text):
                path = f"{place.path}.{name}"
                raise InvalidRequestError(
                    f"{path} has {shown(text)}; the character {found[0]!r} has no short escape in JSON, and is never "
                    "written. Leave it out.",
                    path,
                )
    fewest = schema.get("minProperties", 0)
    if fewest > 1 and fewest > len(set(schema.get("required", ())) & set(schema.get("properties", {}))):
        path = f"{place.path}.minProperties"
        raise InvalidRequestError(
            f"{path} is {fewest}; more than 1 can't be enforced beyond the required properties: a name might come "
            "twice. Name the properties in properties and required.",
            path,
        )


def _check_numbers(root: Place) -> None:
    """Refuse integers that no double holds: llguidance reads none, wherever they stand."""
    waiting: list[tuple[Any, str]] = [(root.schema, root.path)]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, dict):
            waiting += [(each, path + step(key)) for key, each in value.items()]
        elif isinstance(value, list):
            waiting += [(each, f"{path}[{number}]") for number, each in enumerate(value)]
        elif isinstance(value, int) and abs(value) > sys.float_info.max:
            raise _wrong(path, value, f"a number from -{sys.float_info.max} to {sys.float_info.max}")


def _texts_within(value: Any) -> Iterator[str]:
    """All texts of a JSON value that are not names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts_within(each)


def _target(root: dict[str, Any], reference: str, path: str) -> tuple[Any, str]:
    """The schema that a reference means, and its path from the root."""
    if reference != "#" and not reference.startswith("#/"):
        raise _wrong(path, reference, "a pointer into this schema: # or #/…")
    target: Any = root
    way = ""
    for key in _keys(reference):
        if isinstance(target, dict) and key in target:
            target, way = target[key], way + step(key)
        elif isinstance(target, list) and re.fullmatch("0|[1-9][0-9]{0,8}", key) and int(key) < len(target):
            target, way = target[int(key)], f"{way}[{key}]"
        else:
            raise _wrong(path, reference, "a pointer to a schema that is there")
    if not isinstance(target, dict | bool):
        raise _wrong(path, reference, "a pointer to a schema: an object, true or false")
    return target, way


def _keys(reference: str) -> list[str]:
    """The keys of a pointer, from the root on."""
    return [unquote(part).replace("~1", "/").replace("~0", "~") for part in reference.split("/")[1:]]


def _is_count(value: Any) -> bool:
    return is_number(value) and value == int(value) and 0 <= value < 2**31


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_type(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(each, str) and each in TYPES for each in names)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= MOST_PROPERTIES


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_COUNT: Final = ("an integer from 0 to 2³¹ - 1", _is_count)
_NUMBER: Final = ("a number", is_number)
_SCHEMA: Final = ("a schema: an object, true or false", lambda value: isinstance(value, dict | bool))
_SCHEMAS: Final = ("a list of schemas, not empty", _is_list)
_MAPPING: Final = (f"an object of at most {MOST_PROPERTIES} schemas", _is_mapping)
ENFORCED: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = MappingProxyType(
    {
        "type": (f"one of {', '.join(TYPES)}, or a list of these", _is_type),
        "enum": ("a list of values, not empty", _is_list),
        "const": ("a value", lambda value: True),
        "anyOf": _SCHEMAS,
        "oneOf": _SCHEMAS,
        "allOf": _SCHEMAS,
        "$ref": ("a pointer into this schema: # or #/…", _is_text),
        "$defs": ("an object of schemas", lambda value: isinstance(value, dict)),
        "definitions": ("an object of schemas", lambda value: isinstance(value, dict)),
        "properties": _MAPPING,
        "patternProperties": _MAPPING,
        "additionalProperties": _SCHEMA,
        "required": (
            f"a list of at most {MOST_PROPERTIES} names",
            lambda v: _is_texts(v) and len(v) <= MOST_PROPERTIES,
        ),
        "minProperties": _COUNT,
        "maxProperties": _COUNT,
        "items": ("a schema; a list of schemas is prefixItems", _SCHEMA[1]),
        "prefixItems": _SCHEMAS,
        "minItems": _COUNT,
        "maxItems": _COUNT,
        "minLength": _COUNT,
        "maxLength": _COUNT,
        "pattern": ("a regular expression", _is_text),
        "format": (f"one of {', '.join(sorted(FORMATS))}", lambda value: isinstance(value, str) and value in FORMATS),
        "minimum": _NUMBER,
        "maximum": _NUMBER,
        "exclusiveMinimum": _NUMBER,
        "exclusiveMaximum": _NUMBER,
        "multipleOf": ("a number above 0", lambda value: is_number(value) and value > 0),
    }
)
"""Keyword → what its value must be."""
