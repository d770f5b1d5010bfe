"""The body of ``/v1/chat/completions``.

In: JSON. Out: a checked record. Source: OpenAI's API reference, "Create chat completion".
"""

from typing import Any, Final

from pydantic import Field

from cutaway.sampling.params import CHECKS
from cutaway.sampling.params_checks import Integer
from cutaway.server.http.errors import ApiError
from cutaway.server.openai.chat_prompt import ChatFields
from cutaway.server.openai.form_fields import FormFields
from cutaway.server.openai.reply_fields import ReplyFields
from cutaway.server.openai.sampling_fields import SamplingFields, sampled
from cutaway.server.openai.tool_fields import ToolFields

MAX_TOKENS: Final = CHECKS["max_tokens"]
TOP_LOGPROBS: Final = Integer(0, 20, "Leave it out for the chosen token's alone.")


class ChatRequest(SamplingFields, FormFields, ChatFields, ToolFields, ReplyFields):
    """A conversation to be answered."""

    logprobs: bool | None = Field(None, description="Report the logarithm of the probability of each token.")
    top_logprobs: Any = Field(
        None,
        description="And of so many of the likeliest at its place; with logprobs.",
        json_schema_extra={"anyOf": [{"type": "integer", "minimum": 0, "maximum": 20}, {"type": "null"}]},
    )
    max_tokens: Any = sampled("max_tokens")
    max_completion_tokens: Any = sampled("max_tokens")

    def most_tokens(self) -> Any:
        """``max_completion_tokens``, or the older name for it."""
        newer, older = self.max_completion_tokens, self.max_tokens
        MAX_TOKENS("max_completion_tokens", newer)
        if newer is not None and older is not None and newer != older:
            raise ApiError(
                400,
                f"max_completion_tokens is {newer!r:.100} and max_tokens {older!r:.100}; both mean the same. Leave the "
                "second out.",
                "max_tokens",
                "invalid_value",
            )
        return older if newer is None else newer

    def num_logprobs(self) -> int | None:
        """``SamplingParams.logprobs``."""
        if self.top_logprobs is not None:
            TOP_LOGPROBS("top_logprobs", self.top_logprobs)
            if self.top_logprobs and not self.logprobs:
                raise ApiError(
                    400,
                    f"top_logprobs is {self.top_logprobs} and logprobs is not true; the first needs the second. Add "
                    "logprobs: true.",
                    "top_logprobs",
                    "invalid_value",
                )
        return (self.top_logprobs or 0) if self.logprobs else None
