"""``tools``, ``tool_choice`` and ``parallel_tool_calls``, each part checked where it stands.

In: JSON. Out: a ``ToolUse``; or an ApiError with the path of what is wrong, the value, and what it must be.
Source: OpenAI's API reference, "Create chat completion".
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import Field

from cutaway.sampling.params_checks import shown
from cutaway.server.answers.tools import MOST_TOOLS, NAME, NO_TOOLS, Tool, ToolUse
from cutaway.server.http.errors import ApiError
from cutaway.server.openai.fields import RequestBody

MODES: Final = ("none", "auto", "required")
_CHOICES: Final = '"none", "auto", "required", or {"type": "function", "function": {"name": …}}'
_PARTS: Final = ("name", "description", "parameters", "strict")


class ToolsField(RequestBody):
    """The tools of a conversation."""

    tools: Any = Field(
        None,
        description="The functions that the model may call.",
        json_schema_extra={
            "anyOf": [
                {
                    "type": "array",
                    "maxItems": MOST_TOOLS,
                    "items": {
                        "type": "object",
                        "required": ["type", "function"],
                        "properties": {
                            "type": {"const": "function"},
                            "function": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {
                                    "name": {"type": "string", "pattern": f"^{NAME.pattern}$"},
                                    "description": {"type": "string"},
                                    "parameters": {"type": "object"},
                                    "strict": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
                                },
                            },
                        },
                    },
                },
                {"type": "null"},
            ]
        },
    )


class ToolFields(ToolsField):
    """And how they may be called."""

    tool_choice: Any = Field(
        None,
        description="none, auto, required, or the function that must be called; default, auto.",
        json_schema_extra={"anyOf": [{"enum": list(MODES)}, {"type": "object"}, {"type": "null"}]},
    )
    parallel_tool_calls: bool | None = Field(None, description="false: one call in an answer at most; default, true.")

    def tool_use(self) -> ToolUse:
        """The tools that the model is shown, and whether it must call them."""
        tools = read_tools(self.tools)
        mode, only = _read_choice(self.tool_choice, tools)
        if mode == "none" or not tools:
            return NO_TOOLS
        parallel = self.parallel_tool_calls is not False
        return ToolUse(tools, must_call=mode == "required", only=only, parallel=parallel)


def read_tools(given: Any) -> tuple[Tool, ...]:
    """The tools, checked."""
    if given is None:
        return ()
    if not isinstance(given, list):
        raise _wrong("tools", given, "a list of tools")
    if len(given) > MOST_TOOLS:
        raise ApiError(
            400,
            f"tools has {len(given)} entries; the limit is {MOST_TOOLS}. Send those that matter here.",
            "tools",
            "invalid_value",
        )
    found: dict[str, Tool] = {}
    for number, each in enumerate(given):
        tool = _read_tool(each, f"tools[{number}]")
        if tool.name in found:
            first = list(found).index(tool.name)
            raise ApiError(
                400,
                f"tools[{number}].function.name is {tool.name!r}, as of tools[{first}]; each must have a name of its "
                "own. Rename one, or leave it out.",
                f"tools[{number}].function.name",
                "invalid_value",
            )
        found[tool.name] = tool
    return tuple(found.values())


def _read_tool(given: Any, place: str) -> Tool:
    """One tool of the body, checked. place: its name in errors."""
    if not isinstance(given, Mapping):
        raise _wrong(place, given, 'an object, as {"type": "function", "function": {"name": …}}')
    kind = given.get("type")
    if kind != "function":
        raise _wrong(f"{place}.type", kind, "'function'; tools of other types run at their makers, not here", given)
    function, place = given.get("function"), f"{place}.function"
    if not isinstance(function, Mapping):
        raise _wrong(place, function, "an object with name, description and parameters", given)
    name = function.get("name")
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise _wrong(f"{place}.name", name, "1 to 64 letters, digits, '_' and '-'", function)
    description = function.get("description")
    if not isinstance(description, str | None):
        raise _wrong(f"{place}.description", description, "a text")
    strict = function.get("strict")
    if not isinstance(strict, bool | None):
        raise _wrong(f"{place}.strict", strict, "true or false")
    parameters = _read_parameters(function.get("parameters"), f"{place}.parameters")
    further = {key: value for key, value in function.items() if key not in _PARTS}
    return Tool(name, description, parameters, bool(strict), further)


def _read_parameters(given: Any, place: str) -> Mapping[str, Any]:
    """A JSON schema of an object, as far as templates and grammars rely on it."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _wrong(place, given, "a JSON schema, an object; leave it out for a function without parameters")
    if given.get("type", "object") != "object":
        raise _wrong(f"{place}.type", given["type"], "'object': arguments have names")
    properties = given.get("properties", {})
    if not isinstance(properties, Mapping):
        raise _wrong(f"{place}.properties", properties, "an object: name → JSON schema")
    for key, schema in properties.items():
        if not isinstance(schema, Mapping | bool):
            raise _wrong(f"{place}.properties.{key[:100]}", schema, "a JSON schema, an object")
    required = given.get("required", [])
    if not isinstance(required, list):
        raise _wrong(f"{place}.required", required, "a list of names")
    for number, each in enumerate(required):
        if not isinstance(each, str):
            raise _wrong(f"{place}.required[{number}]", each, "a name")
    return given


def _read_choice(given: Any, tools: Sequence[Tool]) -> tuple[str, str | None]:
    """The mode, and the name of the only function that may be called."""
    if given is None:
        return "auto", None
    names = [tool.name for tool in tools]
    if isinstance(given, str):
        if given not in MODES:
            raise _wrong("tool_choice", given, _CHOICES)
        if given == "required" and not tools:
            raise _wrong("tool_choice", given, "'none' or 'auto' where there are no tools; send tools")
        return given, None
    if not isinstance(given, Mapping):
        raise _wrong("tool_choice", given, _CHOICES)
    if given.get("type") != "function":
        raise _wrong("tool_choice.type", given.get("type"), f"'function'; tool_choice is {_CHOICES}", given)
    function = given.get("function")
    if not isinstance(function, Mapping):
        raise _wrong("tool_choice.function", function, 'an object, as {"name": …}', given)
    name = function.get("name")
    if name not in names:
        there = f"one of {', '.join(names)}" if names else "the name of a tool, and there are no tools"
        raise _wrong("tool_choice.function.name", name, there, function)
    return "required", name


def _wrong(place: str, value: Any, wanted: str, holder: Mapping[str, Any] | None = None) -> ApiError:
    """The refusal of a value; if it isn't there, in the object that should have it, of that."""
    key = place.rpartition(".")[2]
    if holder is not None and key not in holder:
        return ApiError(400, f"{place} is missing; it must be {wanted}.", place, "missing")
    return ApiError(400, f"{place} is {shown(value)}; it must be {wanted}.", place, "invalid_value")
