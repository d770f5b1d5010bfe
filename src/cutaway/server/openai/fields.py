"""The fields of a request's body: which are known, which may be ignored, which are refused, and by what words.

In: the fields that a schema doesn't have. Out: the names of those that are ignored, or an ApiError. Nothing that would
change the answer is ignored.
"""

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from cutaway.sampling.params_checks import shown
from cutaway.server.http.errors import ApiError


class Refused(NamedTuple):
    """A field that is refused, unless its value asks for what happens anyway."""

    accepted: tuple[Any, ...]
    instead: str
    is_told: bool = (
        False  # an accepted value is told among what is ignored: the answer may differ from what it asks for
    )


HARMLESS: Final = frozenset(
    {
        "user",
        "store",
        "metadata",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prompt_cache_options",
        "parallel_tool_calls",  # where there are no tools to be called
        "id",
        "chat_id",
        "session_id",
        "request_id",
    }
)
"""What real clients send and what changes no answer, whatever its value."""

_NO_TOOLS: Final = "Tools belong to chats: use /v1/chat/completions, or leave it out."
_OLD_TOOLS: Final = "It is deprecated: use tools and tool_choice of /v1/chat/completions."
_OTHER_FORM: Final = "Use response_format, or structured_outputs."
_TEXT_ONLY: Final = "This model reads and writes text alone. Leave it out."

REFUSED: Final[Mapping[str, Refused]] = MappingProxyType(
    {
        "tools": Refused(([],), _NO_TOOLS),
        "tool_choice": Refused(("none", "auto"), _NO_TOOLS),
        "functions": Refused(([],), _OLD_TOOLS),
        "function_call": Refused(("none", "auto"), _OLD_TOOLS),
        "json_schema": Refused((), _OTHER_FORM),
        "grammar": Refused((), _OTHER_FORM),
        "guided_decoding_backend": Refused(("auto", "guidance"), "There is one. Leave it out."),
        "guided_whitespace_pattern": Refused((), "White space is bounded here. Leave it out."),
        "modalities": Refused((["text"],), _TEXT_ONLY),
        "audio": Refused((), _TEXT_ONLY),
        "reasoning_effort": Refused(
            ("none",), "Use chat_template_kwargs for what the model's template knows.", is_told=True
        ),
        "verbosity": Refused(("medium",), "Ask for it in the prompt. Leave it out."),
        "web_search_options": Refused((), "Nothing is searched here. Leave it out."),
        "moderation": Refused((), "Nothing is moderated here. Leave it out."),
        "prediction": Refused((), "Predictions are not used here. Leave it out."),
        "suffix": Refused(("",), "Nothing is inserted here. Leave it out."),
        "cache_prompt": Refused((True,), "A cached prompt gives the same bits. Leave it out."),
        "chat_template": Refused((), "Start the server with --chat-template."),
        "use_beam_search": Refused((False,), "Use n for several answers."),
        "length_penalty": Refused((1, 1.0), "It belongs to beam search. Leave it out."),
        "truncate_prompt_tokens": Refused((), "Shorten the prompt yourself."),
        "priority": Refused((0,), "All requests are equal here. Leave it out."),
        "typical_p": Refused((1, 1.0), "Use top_p or min_p."),
        "prompt_logprobs": Refused((), "Use echo and logprobs with /v1/completions."),
        "echo": Refused((False,), "Use /v1/completions, or /apply-template for the prompt."),
        "best_of": Refused((1,), "Ask for n answers and choose."),
        "enable_thinking": Refused((), "Use chat_template_kwargs, which the model's template reads."),
        "reasoning": Refused((), "Use chat_template_kwargs for what the model's template knows."),
        "return_tokens_as_token_ids": Refused((False,), "Use return_token_ids."),
        "n_predict": Refused((), "Use max_tokens."),
        "extra_body": Refused(({},), "It is an argument of OpenAI's client; put its fields beside the others."),
        "mirostat": Refused((0,), "Use temperature, top_p or min_p."),
    }
)


class RequestBody(BaseModel):
    """What all bodies have. null is as good as not there."""

    model_config = ConfigDict(extra="allow", strict=True)
    harmless: ClassVar[frozenset[str]] = HARMLESS  # fields that are ignored
    refused: ClassVar[Mapping[str, Refused]] = REFUSED  # fields that are known and refused

    model: str | None = Field(None, description="One of the server's names of the model; default, the model.")

    def ignored(self) -> list[str]:
        """The fields that are ignored; ApiError 400 for one that may not be."""
        return sorted(name for name, value in (self.model_extra or {}).items() if is_ignored(type(self), name, value))


def is_ignored(body: type[RequestBody], name: str, value: Any) -> bool:
    """Whether a field that the body doesn't take is ignored with a value that means something; ApiError 400 for one
    that may not be ignored.
    """
    if value is None and (name in body.harmless or name in body.refused):
        return False
    if name in body.harmless:
        return True
    if name not in body.refused:
        near = difflib.get_close_matches(name[:100], [*body.model_fields, *body.refused], 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ApiError(400, f"{shown(name)} is no field of this request.{hint} Leave it out.", name, "unknown_field")
    refused = body.refused[name]
    if any(type(value) is type(each) and value == each for each in refused.accepted):
        return refused.is_told
    takes = " or ".join(["null", *map(repr, refused.accepted)])
    raise ApiError(
        400, f"{name} is {shown(value)}; it must be {takes}. {refused.instead}", name, "unsupported_parameter"
    )
