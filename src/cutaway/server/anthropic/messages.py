"""The messages of Anthropic's API as chat templates take them.

In: ``system`` and ``messages``, whose contents are texts or lists of blocks. Out: messages in OpenAI's shape, each with
the place that it comes from; or an ApiError that names the block and the field.
Source: Anthropic's API reference, "Messages".
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from cutaway.server.http.errors import wrong_value
from cutaway.tokenizer.legal_text import check_legal

BLOCKS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "text": ("text", "citations"),
        "thinking": ("thinking", "signature"),
        "redacted_thinking": ("data",),
        "tool_use": ("id", "name", "input", "caller"),
        "tool_result": ("tool_use_id", "content", "is_error"),
    }
)
"""The blocks that are read, with their fields; all may have ``type`` and ``cache_control``."""

BLOCKS_OF: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "user": ("text", "tool_result"),
        "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
        "result": ("text",),
        "system": ("text",),
    }
)


class Conversation(NamedTuple):
    """Messages in OpenAI's shape."""

    messages: list[dict[str, Any]]
    places: list[str]  # of the content of each, in the request

    def names(self) -> list[tuple[str, str]]:
        """The beginnings of paths, as ``errors.renamed`` takes them."""
        found = [(f"messages[{number}].content", place) for number, place in enumerate(self.places)]
        return [*found, *((f"messages[{number}]", place) for number, place in enumerate(self.places))]


def read_conversation(system: Any, messages: Sequence[Any]) -> Conversation:
    """The conversation. Neighbours of one role are one turn; texts are joined by line ends."""
    found = Conversation([], [])
    called: dict[str, str] = {}  # id of a call so far → name of the tool
    if system is not None:
        text = "\n".join(block["text"] for block, _ in _blocks(system, "system", "system"))
        if text:
            _add(found, {"role": "system", "content": text}, "system")
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
        if not isinstance(message, Mapping):
            raise wrong_value(place, message, "an object with role and content")
        role = message.get("role")
        if role not in ("user", "assistant"):
            raise wrong_value(f"{place}.role", role, "'user' or 'assistant'; the system's text is the field system")
        for key in message:
            if key not in ("role", "content"):
                raise wrong_value(f"{place}.{key[:100]}", message[key], "left out: a message has role and content")
        blocks = _blocks(message.get("content"), f"{place}.content", role)
        if role == "user":
            _add_user(found, blocks, place, called)
        else:
            _add_assistant(found, blocks, place, called)
    return found


def _add_user(found: Conversation, blocks: Sequence[tuple[Any, str]], place: str, called: Mapping[str, str]) -> None:
    """Results of calls are messages of their own, before the text beside them."""
    texts = [block["text"] for block, _ in blocks if block["type"] == "text"]
    results = [(block, where) for block, where in blocks if block["type"] == "tool_result"]
    for block, where in results:
        call = block.get("tool_use_id")
        if not isinstance(call, str) or call not in called:
            raise wrong_value(f"{where}.tool_use_id", call, "the id of a tool_use block in a message before")
        failed = block.get("is_error")
        if not isinstance(failed, bool | None):
            raise wrong_value(f"{where}.is_error", failed, "true or false")
        content = block.get("content")
        parts = [] if content is None else _blocks(content, f"{where}.content", "result")
        text = "\n".join(part["text"] for part, _ in parts)
        result = f"Error: {text}" if failed else text
        message = {"role": "tool", "tool_call_id": call, "name": called[call], "content": result}
        _add(found, message, f"{where}.content")
    if texts or not results:
        _add(found, {"role": "user", "content": "\n".join(texts)}, f"{place}.content")


def _add_assistant(found: Conversation, blocks: Sequence[tuple[Any, str]], place: str, called: dict[str, str]) -> None:
    texts = [block["text"] for block, _ in blocks if block["type"] == "text"]
    message: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts)}
    thoughts = [block["thinking"] for block, _ in blocks if block["type"] == "thinking"]
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    calls = [_call(block, where, called) for block, where in blocks if block["type"] == "tool_use"]
    if calls:
        message["tool_calls"] = calls
    _add(found, message, f"{place}.content")


def _call(block: Mapping[str, Any], place: str, called: dict[str, str]) -> dict[str, Any]:
    call, name, given = block.get("id"), block.get("name"), block.get("input")
    if not isinstance(call, str) or not call or call in called:
        raise wrong_value(f"{place}.id", call, "a text that no other call has")
    if not isinstance(name, str) or not name:
        raise wrong_value(f"{place}.name", name, "the name of a tool")
    if not isinstance(given, Mapping):
        raise wrong_value(f"{place}.input", given, "an object")
    called[call] = name
    return {"id": call, "type": "function", "function": {"name": name, "arguments": dict(given)}}


def _add(found: Conversation, message: dict[str, Any], place: str) -> None:
    """Add a message, or its parts to the last one where the role is the same."""
    last = found.messages[-1] if found.messages else None
    if last is None or last["role"] != message["role"] or message["role"] in ("tool", "system"):
        found.messages.append(message)
        found.places.append(place)
        return
    for key in ("content", "reasoning_content"):
        if key in message:
            last[key] = "\n".join(filter(None, (last.get(key), message[key])))
    if "tool_calls" in message:
        last["tool_calls"] = [*last.get("tool_calls", ()), *message["tool_calls"]]


def _blocks(content: Any, place: str, holder: str) -> list[tuple[Mapping[str, Any], str]]:
    """The blocks of a content, each with its place; a text is one block."""
    if isinstance(content, str):
        check_legal(content, place)
        return [({"type": "text", "text": content}, place)]
    if not isinstance(content, list):
        raise wrong_value(place, content, "a text or a list of blocks")
    found = []
    for number, block in enumerate(content):
        where = f"{place}[{number}]"
        if not isinstance(block, Mapping):
            raise wrong_value(where, block, "an object with type")
        kind = block.get("type")
        if kind not in BLOCKS_OF[holder]:
            wanted = " or ".join(map(repr, BLOCKS_OF[holder]))
            why = ": this model reads text alone" if kind in ("image", "document") else ""
            raise wrong_value(f"{where}.type", kind, wanted + why)
        for key in block:
            if key not in ("type", "cache_control", *BLOCKS[kind]):
                raise wrong_value(f"{where}.{key[:100]}", block[key], f"left out of a block of the type {kind}")
        text = {"text": "text", "thinking": "thinking"}.get(kind)
        if text is not None:
            if not isinstance(block.get(text), str):
                raise wrong_value(f"{where}.{text}", block.get(text), "a text")
            check_legal(block[text], f"{where}.{text}")
        found.append((block, where))
    return found
