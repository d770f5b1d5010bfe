"""The keywords of JSON schemas: which are enforced, which say nothing about an answer, which are refused.

Out: tables. Source: JSON Schema draft 2020-12; what llguidance 1.9 enforces was tried keyword by keyword.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
)
"""Values of ``format`` that are enforced."""

ANNOTATIONS: Final = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "example",
        "$comment",
        "deprecated",
        "readOnly",
        "writeOnly",
        "discriminator",  # OpenAPI's: which of the schemas beside it applies can be read from these themselves
        "$anchor",  # references are by pointer alone
    }
)
"""They say nothing about which answers are valid. So do names that begin with x-, as OpenAPI has them."""

ROOT_ANNOTATIONS: Final = frozenset({"$schema", "$id", "$vocabulary"})
"""The same, of the whole schema. ``$id`` further in would change what references mean."""

CONDITION: Final = "Describe the cases by anyOf."
COUNTS: Final = "Describe the items by prefixItems, or check the answer."
REFUSED: Final[Mapping[str, tuple[Any, str]]] = MappingProxyType(
    {
        "not": (None, "Describe what is allowed."),
        "if": (None, CONDITION),
        "then": (None, CONDITION),
        "else": (None, CONDITION),
        "dependentRequired": (None, CONDITION),
        "dependentSchemas": (None, CONDITION),
        "dependencies": (None, CONDITION),
        "uniqueItems": (False, "Use enum for the items with properties of an object, or check the answer."),
        "contains": (None, COUNTS),
        "minContains": (None, COUNTS),
        "maxContains": (None, COUNTS),
        "additionalItems": (None, "Use prefixItems, and items for those behind them."),
        "unevaluatedItems": (True, "Use items: false beside prefixItems."),
        "unevaluatedProperties": (True, "Use additionalProperties: false in each of the schemas."),
        "propertyNames": (True, "Use patternProperties with additionalProperties: false."),
        "contentEncoding": (None, "Use pattern."),
        "contentMediaType": (None, "Describe the content itself, or check the answer."),
        "contentSchema": (None, "Describe the content itself, or check the answer."),
        "nullable": (False, 'Add "null" to the type.'),
        "id": (None, "Use $id at the root, or leave it out."),
        "$dynamicRef": (None, "Use $ref."),
        "$dynamicAnchor": (None, "Use $ref."),
        "$recursiveRef": (None, "Use $ref."),
        "$recursiveAnchor": (False, "Use $ref."),
        "x-guidance": (None, "Leave it out."),
    }
)
"""Keyword → a value that asks for nothing, which is taken (None: no value is); what to do instead."""
