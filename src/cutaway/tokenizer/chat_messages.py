"""Chat messages, tools and variables as the template gets them: checked, copied, and with every string marked as
user text.

In: values from outside, shaped like JSON. Out: lists and mappings whose strings are ``MarkedText``.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cutaway.errors import InvalidRequestError
from cutaway.tokenizer.legal_text import check_legal
from cutaway.tokenizer.provenance import END_MARK, MarkedText, Marks

MAX_DEPTH = 64

# The roles of the chat protocol. A role from this list is a word of the protocol, not of the user: templates
# build control tokens from it ('<|' + message['role'] + '|>').
PROTOCOL_ROLES = frozenset({"system", "developer", "user", "assistant", "model", "tool", "function", "ipython"})


def mark_messages(messages: Sequence[Mapping[str, Any]], marks: Marks) -> list[dict[str, Any]]:
    """The messages with every string in them marked, keys included, except for roles of the protocol.

    Raises:
        InvalidRequestError: they are no list, a message is no mapping, nested too deeply, or has a value that JSON
            doesn't know or a lone surrogate; ``field`` says where.
    """
    check_kind("messages", messages, (list, tuple), "a list of messages")
    marked: list[dict[str, Any]] = []
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidRequestError(
                f"messages[{i}] is {type(message).__name__}; it must be a mapping with 'role' and 'content'",
                field=f"messages[{i}]",
            )
        copy = mark_json(message, f"messages[{i}]", marks)
        role = message.get("role")
        if isinstance(role, str) and role in PROTOCOL_ROLES:
            copy["role"] = role
        marked.append(copy)
    return marked


def mark_tools(tools: Sequence[Mapping[str, Any]], marks: Marks) -> list[Any]:
    """Definitions of tools with every string in them marked, keys included.

    Raises:
        InvalidRequestError: as ``mark_messages``; ``field`` says where.
    """
    check_kind("tools", tools, (list, tuple), "a list of definitions")
    for i, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise InvalidRequestError(
                f"tools[{i}] is {type(tool).__name__}; it must be a mapping, as {{'type': 'function', 'function': …}}",
                field=f"tools[{i}]",
            )
    return [mark_json(tool, f"tools[{i}]", marks) for i, tool in enumerate(tools)]


def mark_variables(variables: Mapping[str, Any], taken: Collection[str], marks: Marks) -> dict[str, Any]:
    """A template's further variables, with every string in their values marked.

    Raises:
        InvalidRequestError: they are no mapping, a name is no identifier or one of those taken, or a value is not
            shaped like JSON.
    """
    check_kind("chat_template_kwargs", variables, Mapping, "a mapping of names to values")
    for name in variables:
        if not (isinstance(name, str) and name.isidentifier()) or name in taken:
            raise InvalidRequestError(
                f"chat_template_kwargs has the name {name!r}; names are identifiers, but not one of "
                f"{', '.join(sorted(taken))}",
                field="chat_template_kwargs",
            )
    return {name: mark_json(value, f"chat_template_kwargs.{name}", marks) for name, value in variables.items()}


def leave_open(messages: list[dict[str, Any]], marks: Marks) -> None:
    """Mark the end of the final message's text, so that the rendered text can be cut there.

    Raises:
        InvalidRequestError: the final message has no text.
    """
    final = messages[-1]
    parts = final.get("content")
    holder, key = (final, "content") if isinstance(parts, str) else (None, "text")
    if isinstance(parts, list):
        holder = next((part for part in reversed(parts) if isinstance(part, dict) and "text" in part), None)
    if holder is None or not isinstance(holder[key], str):
        raise InvalidRequestError(
            "the final message has no text to continue; its 'content' must be one, or have a part of type 'text'",
            field=f"messages[{len(messages) - 1}].content",
        )
    holder[key] = MarkedText(holder[key] + END_MARK, marks)


def cut_open(rendered: str) -> str:
    """The rendered text up to the end of the final message's text.

    Raises:
        InvalidRequestError: the template doesn't print that text, or not to its end.
    """
    head, end, _ = rendered.rpartition(END_MARK)
    if not end:
        raise InvalidRequestError(
            "the model's chat template doesn't print the final message's text to its end, so it can't be continued; "
            "leave continue_final_message out",
            field="continue_final_message",
        )
    return head.replace(END_MARK, "")


def check_kind(field: str, value: object, kind: Any, what: str) -> None:
    """Refuse a value from outside that is not of this kind."""
    if not isinstance(value, kind):
        raise InvalidRequestError(f"{field} is {type(value).__name__}; it must be {what}", field=field)


def mark_json(value: Any, field: str, marks: Marks, depth: int = 0) -> Any:
    """A value shaped like JSON with every string in it marked, keys included.

    Raises:
        InvalidRequestError: it is nested too deeply, or has a value that JSON doesn't know or a lone surrogate;
            ``field`` says where.
    """
    if depth > MAX_DEPTH:
        raise InvalidRequestError(f"{field[:80]}… is nested more than {MAX_DEPTH} levels deep", field=field)
    if isinstance(value, str):
        check_legal(value, field)
        return marks.mark(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {
            mark_json(key, field, marks, depth): mark_json(item, f"{field}.{key}", marks, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [mark_json(item, f"{field}[{i}]", marks, depth + 1) for i, item in enumerate(value)]
    raise InvalidRequestError(
        f"{field} is {type(value).__name__}; it must consist of text, numbers, true, false, null, lists and "
        "mappings with text as keys",
        field=field,
    )
