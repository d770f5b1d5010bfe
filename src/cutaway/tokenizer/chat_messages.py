"""Chat messages as the template gets them: checked, copied, and with every string marked as user text.

In: messages from outside, shaped like JSON. Out: lists and mappings whose strings are ``MarkedText``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cutaway.errors import InvalidRequestError
from cutaway.tokenizer.legal_text import check_legal
from cutaway.tokenizer.provenance import Marks

MAX_DEPTH = 64

# The roles of the chat protocol. A role from this list is a word of the protocol, not of the user: templates
# build control tokens from it ('<|' + message['role'] + '|>').
PROTOCOL_ROLES = frozenset({"system", "developer", "user", "assistant", "model", "tool", "function", "ipython"})


def mark_messages(messages: Sequence[Mapping[str, Any]], marks: Marks) -> list[dict[str, Any]]:
    """The messages with every string in them marked, keys included, except for roles of the protocol.

    Raises:
        InvalidRequestError: a message is no mapping, nested too deeply, or has a value that JSON doesn't know
            or a lone surrogate; ``field`` says where.
    """
    marked: list[dict[str, Any]] = []
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidRequestError(
                f"messages[{i}] is {type(message).__name__}; it must be a mapping with 'role' and 'content'",
                field=f"messages[{i}]",
            )
        copy = _mark_leaves(message, f"messages[{i}]", marks, 0)
        role = message.get("role")
        if isinstance(role, str) and role in PROTOCOL_ROLES:
            copy["role"] = role
        marked.append(copy)
    return marked


def _mark_leaves(value: Any, field: str, marks: Marks, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise InvalidRequestError(f"{field[:80]}… is nested more than {MAX_DEPTH} levels deep", field=field)
    if isinstance(value, str):
        check_legal(value, field)
        return marks.mark(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {
            _mark_leaves(key, field, marks, depth): _mark_leaves(item, f"{field}.{key}", marks, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_mark_leaves(item, f"{field}[{i}]", marks, depth + 1) for i, item in enumerate(value)]
    raise InvalidRequestError(
        f"{field} is {type(value).__name__}; messages consist of text, numbers, true, false, null, lists and "
        "mappings with text as keys",
        field=field,
    )
