"""The items of OpenAI's responses, as chat templates take them, and back.

In: ``input``: a text or items. Out: messages of a chat, each with the place that it comes from; or an ApiError that
names the item and the field.
Source: OpenAI's API reference, "Create a model response", ``input``.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from cutaway.server.http.errors import ApiError, renamed, wrong_value
from cutaway.server.openai.messages import read_messages, read_text
from cutaway.tokenizer.tool_calls import is_object

ROLES: Final = ("user", "assistant", "system", "developer")
FIELDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "message": ("role", "content", "phase"),
        "function_call": ("call_id", "name", "arguments", "namespace"),
        "function_call_output": ("call_id", "output"),
        "reasoning": ("summary", "content", "encrypted_content"),
    }
)
"""The items that are read, with their fields; all may have ``type``, ``id`` and ``status``."""

PARTS: Final = ("input_text", "output_text")


class Items(NamedTuple):
    """Messages of a chat."""

    messages: list[dict[str, Any]]
    names: list[tuple[str, str]]  # the beginnings of paths there and in the request, as ``errors.renamed`` takes them


def read_items(before: Sequence[Mapping[str, Any]], given: Any) -> Items:
    """The conversation: the messages before, and those of ``input``. All are checked together: a result may belong to
    a call of a response before.
    """
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
        whole = True
    elif isinstance(given, list) and given:
        whole = False
    else:
        raise wrong_value("input", given, "a text, or a list of items that is not empty")
    found = Items([dict(message) for message in before], [])
    for number, item in enumerate(given):
        _read_item(found, item, "input" if whole else f"input[{number}]", len(before))
    try:
        checked = read_messages(found.messages)
    except ApiError as error:
        raise renamed(error, found.names) from None
    return Items(checked, found.names)


def _read_item(found: Items, item: Any, place: str, first: int) -> None:
    """first: the number of the first message that is the request's own."""
    if not isinstance(item, Mapping):
        raise wrong_value(place, item, "an object with type, or with role and content")
    kind = item.get("type", "message")
    if kind == "item_reference":
        raise wrong_value(f"{place}.type", kind, "the item itself; or use previous_response_id")
    if not isinstance(kind, str) or kind not in FIELDS:
        raise wrong_value(f"{place}.type", kind, f"one of {', '.join(FIELDS)}")
    for key in item:
        if key not in ("type", "id", "status", *FIELDS[kind]):
            raise wrong_value(f"{place}.{key[:100]}", item[key], f"left out of an item of the type {kind}")
    messages, names = found.messages, found.names
    if kind == "message":
        role = item.get("role")
        if role not in ROLES:
            raise wrong_value(f"{place}.role", role, f"one of {', '.join(ROLES)}")
        content_place = place if place == "input" else f"{place}.content"
        content = read_text(item.get("content"), content_place, PARTS)
        if role == "assistant":
            _assistant(found, first)["content"] = _joined(_assistant(found, first)["content"], content)
        else:
            messages.append({"role": role, "content": content})
        names.append((f"messages[{len(messages) - 1}].content", content_place))
    elif kind == "function_call":
        message = _assistant(found, first)
        call = {"name": item.get("name"), "arguments": item.get("arguments", "")}
        calls = message.setdefault("tool_calls", [])
        calls.append({"id": item.get("call_id"), "type": "function", "function": call})
        here = f"messages[{len(messages) - 1}].tool_calls[{len(calls) - 1}]"
        names += [(f"{here}.id", f"{place}.call_id"), (f"{here}.function", place), (here, place)]
    elif kind == "function_call_output":
        content = read_text(item.get("output"), f"{place}.output", PARTS)
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": content})
        here = f"messages[{len(messages) - 1}]"
        names += [(f"{here}.tool_call_id", f"{place}.call_id"), (f"{here}.content", f"{place}.output")]
    else:
        thoughts = _thoughts(item.get("content"), f"{place}.content")
        message = _assistant(found, first)
        if thoughts:
            message["reasoning_content"] = _joined(message.get("reasoning_content", ""), thoughts)
    names.append((f"messages[{len(messages) - 1}]", place))


def _assistant(found: Items, first: int) -> dict[str, Any]:
    """The assistant's message that is being read; items of its that follow each other are one."""
    if len(found.messages) == first or found.messages[-1]["role"] != "assistant":
        found.messages.append({"role": "assistant", "content": ""})
    return found.messages[-1]


def _joined(before: str, text: str) -> str:
    return f"{before}\n{text}" if before and text else before or text


def _thoughts(content: Any, place: str) -> str:
    """The texts of a reasoning item; a summary is for people, and what is encrypted is another maker's."""
    if content is None:
        return ""
    if not isinstance(content, list):
        raise wrong_value(place, content, "a list of parts")
    for number, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind != "reasoning_text" or not isinstance(part.get("text"), str):
            raise wrong_value(f"{place}[{number}]", part, 'an object, as {"type": "reasoning_text", "text": …}')
    return "\n".join(part["text"] for part in content)


def answer_message(output: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The message of the assistant's that a response's items are, as ``read_items`` would read them.

    A call whose arguments the model spoilt, or that was cut, is there without them: no template could print them, and
    what the client has to say of the call can follow.
    """
    found = Items([], [])
    for item in output:
        is_spoilt = item["type"] == "function_call" and not is_object(item["arguments"])
        _read_item(found, {**item, "arguments": "{}"} if is_spoilt else item, "output", 0)
    return found.messages[0]
