"""Messages as templates take them, and which of them an answer continues."""

from typing import Any

import pytest

from cutaway.server.answers.prompt import continues
from cutaway.server.openai.messages import read_messages

CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_messages_are_copies() -> None:
    """What a client sent stays as it is, and what templates may want beside role and content goes through. A result
    gets the name of its function, which some templates want.
    """
    given = [
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "c"},
        {"role": "tool", "content": "3", "tool_call_id": "1"},
    ]
    before = repr(given)
    assert read_messages(given) == [
        {"role": "system", "content": "a\nb"},
        {"role": "assistant", "content": "", "tool_calls": [CALL], "reasoning_content": "c"},
        {"role": "tool", "content": "3", "tool_call_id": "1", "name": "f"},
    ]
    assert repr(given) == before


@pytest.mark.parametrize(
    ("last", "goes_on"),
    [
        ({"role": "assistant", "content": "Well,"}, True),
        ({"role": "assistant", "content": [{"type": "text", "text": "Well,"}]}, True),
        ({"role": "assistant", "content": ""}, False),
        ({"role": "assistant", "content": None}, False),
        ({"role": "assistant", "content": "I call it.", "tool_calls": [CALL]}, False),
        ({"role": "assistant", "content": "Well,", "tool_calls": []}, True),
        ({"role": "user", "content": "Well,"}, False),
        ({"role": "tool", "content": "3", "tool_call_id": "1"}, False),
    ],
)
def test_what_is_continued(last: dict[str, Any], goes_on: bool) -> None:
    before = [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [CALL]}]
    assert continues(read_messages([*before, last])) is goes_on
