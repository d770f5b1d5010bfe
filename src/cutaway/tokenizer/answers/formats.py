"""How a model writes calls and thoughts: found in what its own chat template writes.

In: a template's source, and what it makes of a conversation with a tool and a call of it. Out: the format.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from cutaway.tokenizer.answers.json_call import PYTHON_TAG
from cutaway.tokenizer.answers.marked import HERMES, MISTRAL
from cutaway.tokenizer.answers.reasoning import REASONING, Markers
from cutaway.tokenizer.answers.tool_code import FENCE
from cutaway.tokenizer.tool_calls import CALLED, Messages, probe_messages

CALLS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hermes": r'<tool_call>\s*\{\s*"(?:name|arguments)"\s*:',
        "mistral_named": r"\[ARGS\]",
        "mistral": r"\[TOOL_CALLS\]",
        "tool_code": r"```tool_code",
        "json": rf'\{{\s*"name": (?:"{CALLED}"|function name), "?(?:parameters|arguments)"?: ',
    }
)
"""The formats of calls that are known, the first that fits wins: name → what such a template writes. "function name" is
how Llama's and Gemma's instructions write it."""

_MARKERS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {"hermes": HERMES, "mistral": MISTRAL, "mistral_named": MISTRAL, "tool_code": FENCE, "json": (PYTHON_TAG,)}
)

DEFINED: Final = "probe_defined"


class AnswerFormat(NamedTuple):
    """How a model writes. ``takes_tools``: its template shows them to the model; their calls may still be of a format
    that is not known.
    """

    calls: str | None = None
    reasoning: Markers | None = None
    takes_tools: bool = False
    takes_calls: bool = False

    def markers(self, *, calls: bool) -> tuple[str, ...]:
        """What a parser needs to see in the text, be it a control token or not. calls: whether it looks for them."""
        return (*(self.reasoning or ()), *(_MARKERS[self.calls] if calls and self.calls else ()))


PLAIN: Final = AnswerFormat()
"""Of a model without a template: all is content."""


def probe_tools() -> list[dict[str, Any]]:
    """A tool, whose only purpose is to be found in what a template writes."""
    parameters = {"type": "object", "properties": {"probe_property": {"type": "string", "description": "?"}}}
    function = {"name": DEFINED, "description": "?", "parameters": {**parameters, "required": []}}
    return [{"type": "function", "function": function}]


def probe_conversations() -> tuple[Messages, Messages]:
    """One with a call, and for a template that refuses it one without."""
    with_call = probe_messages(as_text=False)
    return with_call, with_call[:1]


def find_format(source: str, rendered: str, shows_calls: bool) -> AnswerFormat:
    """The format of a template. rendered: the probes, as it writes them; "" if it refuses them. shows_calls: whether
    the call of the probe was in it.
    """
    takes_tools = DEFINED in rendered
    calls = next((name for name, pattern in CALLS.items() if re.search(pattern, rendered)), None)
    thoughts = next((each for each in REASONING if each.end in source), None)
    return AnswerFormat(calls if takes_tools else None, thoughts, takes_tools, shows_calls)
