"""The arguments of tool calls in a history, as JSON text (the OpenAI protocol) or as mappings (most templates).

In: messages. Out: the same with all arguments in one of the two shapes, for the template to print. What is no JSON
object stays the text that it is.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cutaway.tokenizer.strict_json import finite, no_constant, once

Messages = Sequence[Mapping[str, Any]]

CALLED: Final = "probe_called"
"""The function that is called in ``probe_messages``."""

_KEY, _VALUE = "probe_key", "probe_value"


def with_arguments(messages: Messages, *, as_text: bool) -> tuple[Messages, bool]:
    """The messages with the arguments of all tool calls as JSON text, or as mappings; whether any was changed.

    Keys keep their order. An empty text counts as no arguments. Nothing that is given is changed in place, and what has
    another shape than a tool call is left for the template to judge.
    """
    changed = False

    def convert(call: Any) -> Any:
        nonlocal changed
        holder = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(holder, Mapping) or "arguments" not in holder:
            return call
        given = holder["arguments"]
        converted = _as_text(given) if as_text else _as_mapping(given)
        if converted is given:
            return call
        changed = True
        holder = {**holder, "arguments": converted}
        return {**call, "function": holder} if "function" in call else holder

    def convert_message(message: Any) -> Any:
        calls = message.get("tool_calls") if isinstance(message, Mapping) else None
        return (
            {**message, "tool_calls": [convert(call) for call in calls]} if isinstance(calls, list | tuple) else message
        )

    return [convert_message(message) for message in messages], changed


def probe_messages(*, as_text: bool) -> Messages:
    """A conversation whose only purpose is to show what a template makes of a tool call's arguments."""
    arguments: Any = {_KEY: _VALUE}
    call = {
        "id": "probe0123",
        "type": "function",
        "function": {"name": CALLED, "arguments": json.dumps(arguments) if as_text else arguments},
    }
    return [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "probe0123", "name": CALLED, "content": "0"},
    ]


def shows_mapping(rendered: str) -> bool:
    """Whether a template that was given a mapping printed it in a form of its own or as JSON, not as Python does."""
    return _KEY in rendered and _VALUE in rendered and f"'{_KEY}': '{_VALUE}'" not in rendered


def shows_text(rendered: str) -> bool:
    """Whether a template that was given JSON text printed it as it is, and not as a text within JSON."""
    return f'"{_KEY}": "{_VALUE}"' in rendered


def is_object(text: str) -> bool:
    """Whether a call's arguments are an object in JSON, as Python reads it: then every template can print them."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _as_mapping(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments, object_pairs_hook=once, parse_constant=no_constant, parse_float=finite)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _as_text(arguments: Any) -> Any:
    if not isinstance(arguments, Mapping):
        return arguments
    try:
        return json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # mark_messages says what is wrong with it
        return arguments
