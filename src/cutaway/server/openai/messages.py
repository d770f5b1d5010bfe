"""The messages of a chat as templates take them: roles known, contents texts.

In: messages as clients send them. Out: copies; or an ApiError that names the message and the field.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cutaway.sampling.params_checks import shown
from cutaway.server.http.errors import ApiError

ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
ROLE_OF: Final = {"developer": "system"}  # its newer name in OpenAI's API, which templates don't know


def read_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages. Parts of text are joined by line ends; what else a message has is left as it is."""
    return [_message(message, f"messages[{number}]") for number, message in enumerate(messages)]


def continues(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an answer to these goes on with the last of them, unless it is said."""
    last = messages[-1]
    return last["role"] == "assistant" and bool(last["content"]) and not last.get("tool_calls")


def _message(message: Mapping[str, Any], place: str) -> dict[str, Any]:
    role = message.get("role")
    if role not in ROLES:
        raise _refusal(f"{place}.role", role if "role" in message else "missing", f"one of {', '.join(ROLES)}")
    calls = message.get("tool_calls")
    if calls is not None:
        _check_calls(calls, f"{place}.tool_calls")
    copy = dict(message)
    copy["role"] = ROLE_OF.get(role, role)
    copy["content"] = _content(message.get("content"), f"{place}.content", may_be_none=role == "assistant")
    return copy


def _content(content: Any, place: str, *, may_be_none: bool) -> str:
    if content is None and may_be_none:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _refusal(place, content, "a text or a list of parts")
    texts = []
    for number, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind != "text":
            raise _refusal(f"{place}[{number}].type", kind, "'text': this model reads text alone")
        if not isinstance(part.get("text"), str):
            raise _refusal(f"{place}[{number}].text", part.get("text"), "a text")
        texts.append(part["text"])
    return "\n".join(texts)


def _check_calls(calls: Any, place: str) -> None:
    """Refuse tool calls of another shape than OpenAI's, each fault by its place."""
    if not isinstance(calls, list):
        raise _refusal(place, calls, "a list of calls")
    for number, call in enumerate(calls):
        here = f"{place}[{number}]"
        if not isinstance(call, Mapping):
            raise _refusal(here, call, "an object with id, type and function")
        if call.get("type", "function") != "function":
            raise _refusal(f"{here}.type", call["type"], "'function'")
        function = call.get("function")
        if not isinstance(function, Mapping):
            raise _refusal(f"{here}.function", function, "an object with name and arguments")
        if not isinstance(function.get("name"), str):
            raise _refusal(f"{here}.function.name", function.get("name"), "a text")
        if not isinstance(function.get("arguments", ""), str | Mapping):
            raise _refusal(f"{here}.function.arguments", function["arguments"], "an object as JSON text")


def _refusal(place: str, value: Any, wanted: str) -> ApiError:
    return ApiError(400, f"{place} is {shown(value)}; it must be {wanted}.", place, "invalid_value")
