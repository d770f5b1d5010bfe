"""The bodies of ``/v1/messages`` and of ``/v1/messages/count_tokens``.

In: JSON. Out: checked records. Source: Anthropic's API reference, "Create a Message", "Count tokens in a Message";
``seed``, ``chat_template_kwargs`` and what begins with ``return_`` are this server's own.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from pydantic import Field

from cutaway.sampling.params import CHECKS, SamplingParams
from cutaway.sampling.params_checks import Number, is_integer, shown
from cutaway.sampling.structured_outputs import FIELD
from cutaway.server.answers.beside import BesideFields
from cutaway.server.http.errors import ApiError
from cutaway.server.openai.fields import Refused, RequestBody
from cutaway.server.openai.form_fields import AskedForm
from cutaway.server.openai.sampling_fields import sampled

TEMPERATURE: Final = Number(0.0, 1.0, "Use 0 for the likeliest token, 1 for the model's distribution.")
LEAST_BUDGET: Final = 1024  # tokens of thoughts that Anthropic's API takes at least

HARMLESS: Final = frozenset(
    {"metadata", "service_tier", "cache_control", "inference_geo", "user_profile_id", "workspace_id"}
)
"""What real clients send and what changes no answer, whatever its value: what can be cached is cached."""

REFUSED: Final[Mapping[str, Refused]] = MappingProxyType(
    {
        "mcp_servers": Refused(([],), "No other server is asked from here. Leave it out."),
        "container": Refused((), "No code is run here. Leave it out."),
        "context_management": Refused((), "Shorten the conversation yourself."),
        "output_format": Refused((), "Use output_config.format."),
        "max_tokens_to_sample": Refused((), "Use max_tokens."),
        "stop": Refused((), "Use stop_sequences."),
        "prompt": Refused((), "Use messages."),
        "diagnostics": Refused((), "The log says what went wrong. Leave it out."),
        "speed": Refused(("standard",), "There is one speed. Leave it out."),
    }
)


class PromptFields(RequestBody):
    """A conversation."""

    harmless: ClassVar[frozenset[str]] = HARMLESS
    refused: ClassVar[Mapping[str, Refused]] = REFUSED

    system: Any = Field(
        None,
        description="Instructions before the conversation: a text, or a list of text blocks.",
        json_schema_extra={"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
    )
    messages: list[Any] = Field(
        min_length=1,
        description="The conversation, of the roles user and assistant, contents as texts or lists of blocks. If its "
        "last message is the assistant's, the answer continues it.",
    )
    tools: Any = Field(
        None,
        description="The tools that the model may call, each with name, description, input_schema.",
        json_schema_extra={"anyOf": [{"type": "array", "items": {"type": "object"}}, {"type": "null"}]},
    )
    tool_choice: Any = Field(
        None,
        description='How they may be called: an object whose type is "auto", "any", "tool" or "none"; default, auto.',
        json_schema_extra={"anyOf": [{"type": "object"}, {"type": "null"}]},
    )
    thinking: Any = Field(
        None,
        description='An object whose type is "enabled", "adaptive" or "disabled"; default, as the model does.',
        json_schema_extra={"anyOf": [{"type": "object"}, {"type": "null"}]},
    )
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="Further variables for the chat template.")

    def thinks(self) -> bool | None:
        """What ``thinking`` asks for; None where it is left to the model."""
        given = self.thinking
        if given is None:
            return None
        kinds = ("enabled", "adaptive", "disabled")
        kind = given.get("type") if isinstance(given, dict) else None
        if kind not in kinds:
            place = "thinking.type" if isinstance(given, dict) else "thinking"
            raise _wrong(place, kind if isinstance(given, dict) else given, f"one of {', '.join(kinds)}")
        for name in given:
            if name not in ("type", "budget_tokens", "display"):
                raise _wrong(f"thinking.{name}", given[name], "left out")
        budget = given.get("budget_tokens")
        if (kind == "enabled" or budget is not None) and not (is_integer(budget) and budget >= LEAST_BUDGET):
            raise _wrong("thinking.budget_tokens", budget, f"an integer of at least {LEAST_BUDGET}")
        return bool(kind != "disabled")


class MessagesRequest(PromptFields, BesideFields):
    """A conversation to be answered."""

    max_tokens: Any = Field(
        description="Tokens of the answer at most; the context's end may come before.",
        json_schema_extra={"type": "integer", "minimum": 1},
    )
    temperature: Any = sampled("temperature")
    top_p: Any = sampled("top_p")
    top_k: Any = sampled("top_k")
    seed: Any = sampled("seed")
    stop_sequences: Any = Field(
        None,
        description="Texts that end the answer.",
        json_schema_extra={"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
    )
    stream: bool | None = Field(None, description="Send the answer as it comes, as server-sent events.")
    output_config: Any = Field(
        None,
        description='The form of the answer: {"format": {"type": "json_schema", "schema": …}}.',
        json_schema_extra={"anyOf": [{"type": "object"}, {"type": "null"}]},
    )

    def form(self) -> AskedForm:
        """The form of the answer."""
        given = self.output_config
        if given is None:
            return AskedForm(None)
        if not isinstance(given, dict):
            raise _wrong("output_config", given, 'an object, as {"format": …}')
        for name, value in given.items():
            if name != "format" and value is not None:
                raise _wrong(f"output_config.{name[:100]}", value, "left out: it is not supported")
        form = given.get("format")
        if form is None:
            return AskedForm(None)
        place = "output_config.format"
        if not isinstance(form, dict) or form.get("type") != "json_schema":
            raise _wrong(place, form, 'an object, as {"type": "json_schema", "schema": …}')
        for name, value in form.items():
            if name not in ("type", "schema"):
                raise _wrong(f"{place}.{name[:100]}", value, "left out")
        if not isinstance(form.get("schema"), dict):
            raise _wrong(f"{place}.schema", form.get("schema"), "a JSON schema, an object")
        return AskedForm({"json": form["schema"]}, f"{FIELD}.json", f"{place}.schema")

    def sampling_params(self, advised: Mapping[str, Any], form: Mapping[str, Any] | None) -> SamplingParams:
        """The parameters. advised: where the body says nothing. form: of the answer."""
        if self.max_tokens is None:
            raise _wrong("max_tokens", None, "an integer of at least 1")
        CHECKS["max_tokens"]("max_tokens", self.max_tokens)
        if self.stop_sequences is not None:
            if not isinstance(self.stop_sequences, list):
                raise _wrong("stop_sequences", self.stop_sequences, "a list of texts")
            CHECKS["stop"]("stop_sequences", self.stop_sequences)
        if self.temperature is not None:
            TEMPERATURE("temperature", self.temperature)
        names = ("temperature", "top_p", "top_k", "seed", "max_tokens")
        given: dict[str, Any] = {name: value for name in names if (value := getattr(self, name)) is not None}
        given[FIELD] = form
        return SamplingParams(stop=self.stop_sequences or None, **{**advised, **given})


class CountRequest(PromptFields):
    """A conversation whose tokens are to be counted."""


def _wrong(place: str, value: Any, wanted: str) -> ApiError:
    return ApiError(400, f"{place} is {shown(value)}; it must be {wanted}.", place, "invalid_value")
