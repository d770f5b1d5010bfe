"""The body of ``/v1/responses``.

In: JSON. Out: a checked record. Source: OpenAI's API reference, "Create a model response"; ``top_k``, ``seed``,
``cache_prompt``, ``chat_template_kwargs`` and what begins with ``return_`` are this server's own.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from pydantic import Field

from cutaway.sampling.params import CHECKS, SamplingParams
from cutaway.sampling.params_checks import shown
from cutaway.sampling.structured_outputs import FIELD
from cutaway.server.answers.beside import BesideFields
from cutaway.server.answers.tools import ToolUse
from cutaway.server.http.errors import ApiError, renamed
from cutaway.server.openai.fields import Refused
from cutaway.server.openai.form_fields import AskedForm, read_response_format
from cutaway.server.openai.reply_fields import CacheField
from cutaway.server.openai.sampling_fields import check_narrower, sampled
from cutaway.server.openai.tool_fields import ToolFields

HARMLESS: Final = frozenset(
    {"user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "client_metadata"}
)
"""What real clients send and what changes no answer, whatever its value."""

REFUSED: Final[Mapping[str, Refused]] = MappingProxyType(
    {
        "background": Refused((False,), "Nothing runs in the background. Use stream for a long answer."),
        "conversation": Refused((), "Use previous_response_id."),
        "context_management": Refused(([],), "Shorten the conversation yourself."),
        "include": Refused(([],), "There is nothing beside the output. Leave it out."),
        "max_tool_calls": Refused((), "It counts calls of built-in tools, of which there are none. Leave it out."),
        "messages": Refused((), "Use input."),
        "moderation": Refused((), "Nothing is moderated here. Leave it out."),
        "prompt": Refused((), "No prompts are kept here. Use instructions and input."),
        "reasoning": Refused(({},), "Use chat_template_kwargs for what the model's template knows."),
        "response_format": Refused((), "Use text.format."),
        "stop": Refused((), "Use /v1/chat/completions."),
        "stream_options": Refused(({}, {"include_obfuscation": False}), "Padding is left to who does TLS."),
        "top_logprobs": Refused((0,), "Use /v1/chat/completions for logprobs."),
        "truncation": Refused(("disabled",), "Shorten the conversation yourself."),
        "max_tokens": Refused((), "Use max_output_tokens."),
        "max_completion_tokens": Refused((), "Use max_output_tokens."),
    }
)

FORMAT_NAMES: Final = (("response_format.json_schema", "text.format"), ("response_format", "text.format"))
"""What the checks of chats call the form, and what it is called here."""

PLAIN_TEXT: Final[Mapping[str, Any]] = MappingProxyType({"format": {"type": "text"}})
TOOL_FIELDS: Final = ("name", "description", "parameters", "strict")


class ResponseRequest(ToolFields, BesideFields, CacheField):
    """What is to be answered."""

    harmless: ClassVar[frozenset[str]] = HARMLESS
    refused: ClassVar[Mapping[str, Refused]] = REFUSED

    input: Any = Field(
        description="A text, or a list of items: messages, calls of functions and what these gave.",
        json_schema_extra={
            "anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"type": "object"}}]
        },
    )
    instructions: str | None = Field(
        None, description="The system's message. It is not kept for the responses that follow."
    )
    previous_response_id: str | None = Field(None, description="The response whose conversation this goes on with.")
    store: bool | None = Field(None, description="Keep the response, so that another can follow it; default, true.")
    max_output_tokens: Any = sampled("max_tokens")
    temperature: Any = sampled("temperature")
    top_p: Any = sampled("top_p")
    top_k: Any = sampled("top_k")
    seed: Any = sampled("seed")
    text: Any = Field(
        None,
        description='The form of the answer: {"format": …} of the type text, json_object, or json_schema with name and '
        "schema, which is always enforced.",
        json_schema_extra={"anyOf": [{"type": "object"}, {"type": "null"}]},
    )
    metadata: dict[str, str] | None = Field(None, description="Is given back with the response.")
    stream: bool | None = Field(None, description="Send the answer as it comes, as server-sent events.")
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="Further variables for the chat template.")

    @property
    def keeps(self) -> bool:
        """Whether the response is kept."""
        return self.store is not False

    def sampling_params(self, advised: Mapping[str, Any], form: Mapping[str, Any] | None) -> SamplingParams:
        """The parameters. advised: where the body says nothing. form: of the answer."""
        CHECKS["max_tokens"]("max_output_tokens", self.max_output_tokens)
        check_narrower("temperature", self.temperature)
        names = ("temperature", "top_p", "top_k", "seed")
        given: dict[str, Any] = {name: value for name in names if (value := getattr(self, name)) is not None}
        given[FIELD] = form
        return SamplingParams(max_tokens=self.max_output_tokens, **{**advised, **given})

    def form(self) -> AskedForm:
        """The form of the answer, by the checks of ``response_format`` of chats, where a schema lies a level deeper."""
        if self.text is None:
            return AskedForm(None)
        if not isinstance(self.text, Mapping):
            raise _wrong("text", self.text, 'an object, as {"format": {"type": "text"}}')
        for name, value in self.text.items():
            if name == "verbosity" and value not in (None, "medium"):
                raise _wrong("text.verbosity", value, "'medium'. Ask for it in the instructions")
            if name not in ("format", "verbosity"):
                raise _wrong(f"text.{name[:100]}", value, "left out")
        given = self.text.get("format")
        if given is None:
            return AskedForm(None)
        if not isinstance(given, Mapping):
            raise _wrong("text.format", given, 'an object, as {"type": "text"}')
        nested = dict(given)
        if given.get("type") == "json_schema":
            described = {key: value for key, value in given.items() if key != "type"}
            nested = {"type": "json_schema", "json_schema": described}
        try:
            asked = read_response_format(nested)
        except ApiError as error:
            raise renamed(error, FORMAT_NAMES) from None
        schema = nested["type"] == "json_schema"
        return asked._replace(theirs="text.format.schema" if schema else "text.format")

    def tool_use(self) -> ToolUse:
        """The tools that the model is shown, by the checks of chats, where a function's fields lie one level deeper."""
        try:
            return self.model_copy(
                update={"tools": _nested_tools(self.tools), "tool_choice": _nested_choice(self.tool_choice)}
            )._chat_tool_use()
        except ApiError as error:
            raise renamed(error, [*self.names_of_tools(), ("tool_choice.function", "tool_choice")]) from None

    def names_of_tools(self) -> list[tuple[str, str]]:
        """The beginnings of paths into tools, as chats have them and here."""
        count = len(self.tools) if isinstance(self.tools, list) else 0
        return [(f"tools[{number}].function", f"tools[{number}]") for number in range(count)]

    def _chat_tool_use(self) -> ToolUse:
        return super().tool_use()


def _nested_tools(tools: Any) -> Any:
    """Flat definitions in the shape that chats have; what is no list of functions is left as it is, to be refused."""
    if not isinstance(tools, list):
        return tools
    found = []
    for number, tool in enumerate(tools):
        if not isinstance(tool, Mapping) or tool.get("type") != "function":
            found.append(tool)
            continue
        for key in tool:
            if key not in ("type", *TOOL_FIELDS):
                raise _wrong(f"tools[{number}].{key[:100]}", tool[key], "left out: it is not supported")
        function = {key: value for key, value in tool.items() if key in TOOL_FIELDS}
        found.append({"type": "function", "function": function})
    return found


def _nested_choice(choice: Any) -> Any:
    if not isinstance(choice, Mapping) or choice.get("type") != "function":
        return choice
    return {"type": "function", "function": {key: value for key, value in choice.items() if key != "type"}}


def _wrong(place: str, value: Any, wanted: str) -> ApiError:
    return ApiError(400, f"{place} is {shown(value)}; it must be {wanted}.", place, "invalid_value")
