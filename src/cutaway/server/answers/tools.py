"""The tools of a request and how they may be called, whichever API it came by.

In: what an API has read and checked. Out: records; the definitions as chat templates take them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

MOST_TOOLS: Final = 128
NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Tool(NamedTuple):
    """A function that the model may call."""

    name: str
    description: str | None
    parameters: Mapping[str, Any]  # JSON schema of an object
    strict: bool  # the arguments must follow the schema
    further: Mapping[str, Any]  # what else the definition has, for templates that know it

    def definition(self) -> dict[str, Any]:
        """As templates take it: OpenAI's shape, with the parts that they read without asking."""
        function: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        parameters = dict(self.parameters)
        for key, value in (("type", "object"), ("properties", {})):
            parameters.setdefault(key, value)
        return {"type": "function", "function": {**function, "parameters": parameters, **self.further}}


@dataclass(frozen=True)
class ToolUse:
    """Which tools the model is shown, and whether it must call them."""

    tools: tuple[Tool, ...] = ()
    must_call: bool = False
    only: str | None = None  # the function that must be called
    parallel: bool = True  # several calls in an answer

    @property
    def names(self) -> frozenset[str]:
        """Of the tools."""
        return frozenset(tool.name for tool in self.tools)


NO_TOOLS: Final = ToolUse()
