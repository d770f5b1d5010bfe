"""The parameters of vLLM's ``SamplingParams`` that do nothing here, refused by name with what to do instead.

In: the keyword arguments of a ``SamplingParams``. Out: those that it has; the values that ask for nothing are taken and
left out, so that a script which spells out a default runs. Nothing is dropped that would have changed the result.
"""

import functools
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, NamedTuple, TypeVar

from cutaway.errors import InvalidRequestError
from cutaway.sampling.params_checks import shown

VLLM_VERSION: Final = "0.33.0"
"""The version whose names and defaults these are."""


class Unsupported(NamedTuple):
    """A parameter that is refused, unless its value asks for nothing."""

    name: str
    accepted: tuple[Any, ...]  # the default first; the others ask for what is done anyway
    instead: str  # one or two sentences


UNSUPPORTED: Final = (
    Unsupported("watermarking", (None, False), "No text is watermarked here. Leave it out."),
    Unsupported("prompt_logprob_token_ids", (None,), "Use prompt_logprobs for the likeliest tokens of each position."),
    Unsupported("prompt_logprob_start", (None, 0), "All of the prompt is scored; drop what you don't need."),
    Unsupported("logprob_token_ids", (None,), "Use logprobs for the likeliest tokens, or one request for each answer."),
    Unsupported("flat_logprobs", (False,), "Logprobs are a dict for each position. Leave it out."),
    Unsupported(
        "spaces_between_special_tokens",
        (True, False),
        "The texts of tokens are joined as they are, whatever this says. Leave it out.",
    ),
    Unsupported("output_kind", ("CUMULATIVE",), "Use LLM.generate for the whole output and LLM.stream for deltas."),
    Unsupported("stream_interval", (None, 1), "A stream has a delta for each token. Join deltas as you like."),
    Unsupported("skip_clone", (False,), "A SamplingParams can't change, so it is never cloned. Leave it out."),
    Unsupported("output_text_buffer_length", (0,), "It follows from stop. Leave it out."),
    Unsupported("extra_args", (None, {}), "There are no plug-ins that would read it. Leave it out."),
    Unsupported("skip_reading_prefix_cache", (None,), "A cached prefix gives the same bits. Leave it out."),
    Unsupported("thinking_token_budget", (None, -1), "Use max_tokens for the whole answer."),
    Unsupported("repetition_detection", (None,), "Use stop or max_tokens, or a repetition_penalty above 1."),
    Unsupported("routed_experts_prompt_start", (0,), "Routing of experts is not reported. Leave it out."),
    Unsupported("trace_decode_token_ids", (None,), "Give the tokens as a prompt with prompt_logprobs."),
)

_Class = TypeVar("_Class")


def _asks_for_nothing(field: Unsupported, value: Any) -> bool:
    """Whether a value is one of those accepted. 0 and False are different values; a member of an enum is its name."""
    value = getattr(value, "name", value)
    return any(type(value) is type(each) and value == each for each in field.accepted)


def without_unsupported(given: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """The arguments that are known; InvalidRequestError for one that is not, unless it asks for nothing."""
    table = {field.name: field for field in UNSUPPORTED}
    kept = {}
    for name, value in given.items():
        if name in known:
            kept[name] = value
        elif name not in table:
            raise InvalidRequestError(
                f"{shown(name)} is no sampling parameter. There are: {', '.join(sorted(known))}.", name
            )
        elif not _asks_for_nothing(table[name], value):
            accepted = " or ".join(repr(each) for each in table[name].accepted)
            raise InvalidRequestError(
                f"{name} is {shown(value)}; it is not supported and must be {accepted}. {table[name].instead}", name
            )
    return kept


def refuse_by_name(record: type[_Class]) -> type[_Class]:
    """Decorator of a dataclass: arguments that it lacks are refused by ``without_unsupported``."""
    accept: Any = record.__init__
    known = frozenset(field.name for field in fields(record))  # type: ignore[arg-type]

    @functools.wraps(accept)
    def initialise(self: _Class, /, *positional: Any, **given: Any) -> None:
        accept(self, *positional, **without_unsupported(given, known))

    setattr(record, "__init__", initialise)  # noqa: B010 - a plain assignment to a method has no type
    return record
