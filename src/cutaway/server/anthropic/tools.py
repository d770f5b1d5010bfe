"""``tools`` and ``tool_choice`` of Anthropic's API.

In: JSON. Out: a ``ToolUse``; or an ApiError with the path of what is wrong.
Source: Anthropic's API reference, "Create a Message", "Tool use".
"""

from collections.abc import Mapping
from typing import Any, Final

from cutaway.server.answers.tools import NO_TOOLS, Tool, ToolUse
from cutaway.server.http.errors import ApiError, renamed, wrong_value
from cutaway.server.openai.tool_fields import read_tools

FIELDS: Final = ("type", "name", "description", "input_schema", "cache_control", "strict", "eager_input_streaming")
MODES: Final = ("auto", "any", "tool", "none")


def read_tool_use(tools: Any, choice: Any) -> ToolUse:
    """The tools that the model is shown, and whether it must call them."""
    found = _read_tools(tools)
    mode, only, parallel = _read_choice(choice, found)
    if mode == "none" or not found:
        return NO_TOOLS
    return ToolUse(found, must_call=mode in ("any", "tool"), only=only, parallel=parallel)


def _read_tools(given: Any) -> tuple[Tool, ...]:
    """By the checks that OpenAI's tools have, of the same things under other names."""
    if given is None:
        return ()
    if not isinstance(given, list):
        raise wrong_value("tools", given, "a list of tools")
    theirs = [_in_openais_shape(tool, f"tools[{number}]") for number, tool in enumerate(given)]
    try:
        return read_tools(theirs)
    except ApiError as error:
        raise renamed(error, _names(len(given))) from None


def names_of_tools(use: ToolUse) -> list[tuple[str, str]]:
    """The beginnings of paths into tools, as chats have them and here."""
    return _names(len(use.tools))


def _names(count: int) -> list[tuple[str, str]]:
    return [
        (f"tools[{number}].function{there}", f"tools[{number}]{here}")
        for number in range(count)
        for there, here in ((".parameters", ".input_schema"), ("", ""))
    ]


def _in_openais_shape(tool: Any, place: str) -> dict[str, Any]:
    if not isinstance(tool, Mapping):
        raise wrong_value(place, tool, "an object with name, description and input_schema")
    kind = tool.get("type", "custom")
    if kind is not None and kind != "custom":
        raise wrong_value(f"{place}.type", kind, "'custom'; tools of other types run at their maker's, not here")
    for key in tool:
        if key not in FIELDS:
            raise wrong_value(f"{place}.{key[:100]}", tool[key], "left out: it is not supported")
    if "input_schema" not in tool:
        raise ApiError(400, f"{place}.input_schema is missing; it must be a JSON schema.", f"{place}.input_schema")
    names = {"name": "name", "description": "description", "input_schema": "parameters", "strict": "strict"}
    return {"type": "function", "function": {new: tool[old] for old, new in names.items() if old in tool}}


def _read_choice(given: Any, tools: tuple[Tool, ...]) -> tuple[str, str | None, bool]:
    """The mode, the only tool that may be called, and whether several calls may be in one answer."""
    if given is None:
        return "auto", None, True
    wanted = '{"type": "auto"}, "any", "none", or {"type": "tool", "name": …}'
    if not isinstance(given, Mapping):
        raise wrong_value("tool_choice", given, f"an object, as {wanted}")
    mode = given.get("type")
    if mode not in MODES:
        raise wrong_value("tool_choice.type", mode, f"one of {', '.join(MODES)}")
    for key in given:
        if key not in ("type", "disable_parallel_tool_use", *(("name",) if mode == "tool" else ())):
            raise wrong_value(f"tool_choice.{key[:100]}", given[key], f"left out of a tool_choice of the type {mode}")
    alone = given.get("disable_parallel_tool_use")
    if not isinstance(alone, bool | None):
        raise wrong_value("tool_choice.disable_parallel_tool_use", alone, "true or false")
    if mode in ("any", "tool") and not tools:
        raise wrong_value("tool_choice.type", mode, "'none' or 'auto' where there are no tools; send tools")
    name = given.get("name")
    if mode == "tool" and name not in [tool.name for tool in tools]:
        raise wrong_value("tool_choice.name", name, f"one of {', '.join(tool.name for tool in tools)}")
    return mode, name, not alone
