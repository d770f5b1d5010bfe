"""The messages of a chat as templates take them: roles known, contents texts, calls and their results whole.

In: messages as clients send them. Out: copies; or an ApiError that names the message and the field.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from cutaway.sampling.params_checks import shown
from cutaway.server.http.errors import wrong_value
from cutaway.tokenizer.strict_json import no_constant

ROLES: Final = ("system", "developer", "user", "assistant", "tool")
ROLE_OF: Final = {"developer": "system"}  # its newer name in OpenAI's API, which templates don't know
FEW: Final = 8  # ids of calls that an error lists


def read_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages. Parts of text are joined by line ends; what else a message has is left as it is."""
    called: dict[str, str] = {}  # id of a call so far → name of the function
    return [_message(message, f"messages[{number}]", called) for number, message in enumerate(messages)]


def _message(message: Mapping[str, Any], place: str, called: dict[str, str]) -> dict[str, Any]:
    """A copy of the message. called: gets its calls."""
    role = message.get("role")
    if role == "function":
        raise wrong_value(f"{place}.role", role, "'tool', with tool_call_id: functions are deprecated")
    if message.get("function_call") is not None:
        value = message["function_call"]
        raise wrong_value(f"{place}.function_call", value, "left out: it is deprecated. Use tool_calls")
    if role not in ROLES:
        raise wrong_value(f"{place}.role", role if "role" in message else "missing", f"one of {', '.join(ROLES)}")
    copy = dict(message)
    calls = message.get("tool_calls")
    if calls is None:
        copy.pop("tool_calls", None)  # templates ask whether it is there
    else:
        if calls and role != "assistant":
            raise wrong_value(f"{place}.tool_calls", calls, f"left out of a message of the role {role}")
        _check_calls(calls, f"{place}.tool_calls", called)
        if not calls:
            del copy["tool_calls"]
    if role == "tool":
        name = _called_function(message, place, called)
        copy["name"] = name if message.get("name") is None else message["name"]
    thoughts = message.get("reasoning_content")
    if not isinstance(thoughts, str | None):
        raise wrong_value(f"{place}.reasoning_content", thoughts, "a text")
    copy["role"] = ROLE_OF.get(role, role)
    content = message.get("content")
    is_left_out = content is None and role == "assistant"
    copy["content"] = "" if is_left_out else read_text(content, f"{place}.content", ("text",))
    return copy


def read_text(content: Any, place: str, kinds: Sequence[str]) -> str:
    """A content as one text: its parts joined by line ends. ApiError for parts of other kinds than these."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong_value(place, content, "a text or a list of parts")
    texts = []
    for number, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in kinds:
            wanted = f"{' or '.join(map(repr, kinds))}: this model reads text alone"
            raise wrong_value(f"{place}[{number}].type", kind, wanted)
        if not isinstance(part.get("text"), str):
            raise wrong_value(f"{place}[{number}].text", part.get("text"), "a text")
        texts.append(part["text"])
    return "\n".join(texts)


def _called_function(message: Mapping[str, Any], place: str, called: Mapping[str, str]) -> str:
    """The name of the function whose result this is."""
    given, place = message.get("tool_call_id"), f"{place}.tool_call_id"
    if not isinstance(given, str):
        raise wrong_value(place, given, "the id of a call in a message before")
    if given not in called:
        there = f"one of {_few(called)}" if called else "there is none"
        raise wrong_value(place, given, f"the id of a call in a message before: {there}")
    return called[given]


def _check_calls(calls: Any, place: str, called: dict[str, str]) -> None:
    """Refuse tool calls of another shape than OpenAI's, each fault by its place. called: gets id → function."""
    if not isinstance(calls, list):
        raise wrong_value(place, calls, "a list of calls")
    ids: set[str] = set()
    for number, call in enumerate(calls):
        here = f"{place}[{number}]"
        if not isinstance(call, Mapping):
            raise wrong_value(here, call, "an object with id, type and function")
        if call.get("type", "function") != "function":
            raise wrong_value(f"{here}.type", call["type"], "'function'")
        given = call.get("id")
        if not isinstance(given, str) or not given or given in ids:
            raise wrong_value(f"{here}.id", given, "a text that no other call of the message has")
        ids.add(given)
        function = call.get("function")
        if not isinstance(function, Mapping):
            raise wrong_value(f"{here}.function", function, "an object with name and arguments")
        name = function.get("name")
        if not isinstance(name, str) or not name:
            raise wrong_value(f"{here}.function.name", name, "a text")
        _check_arguments(function.get("arguments", ""), f"{here}.function.arguments")
        called[given] = name


def _check_arguments(given: Any, place: str) -> None:
    """Refuse what is neither an object nor one as JSON text. An empty text is as good as {}."""
    if isinstance(given, Mapping) or (isinstance(given, str) and not given.strip()):
        return
    wanted = "an object as JSON text"
    if not isinstance(given, str):
        raise wrong_value(place, given, wanted)
    try:
        value = json.loads(given, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise wrong_value(place, given, f"{wanted}, and is none ({why}). Send it as the model wrote it") from None
    if not isinstance(value, dict):
        raise wrong_value(place, given, wanted)


def _few(ids: Collection[str]) -> str:
    """The last of them, which are meant most often."""
    last = [shown(each) for each in islice(reversed(list(ids)), FEW)][::-1]
    return ", ".join(last if len(ids) <= FEW else ["…", *last])
