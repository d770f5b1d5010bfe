"""The body of ``/v1/completions``.

In: JSON. Out: a checked record. Source: OpenAI's API reference, "Create completion (legacy)".
"""

from typing import Any, Final

from pydantic import Field

from cutaway.sampling.params_checks import shown
from cutaway.server.http.errors import ApiError
from cutaway.server.openai.form_fields import FormFields
from cutaway.server.openai.prompts import PROMPT_SCHEMA
from cutaway.server.openai.reply_fields import ReplyFields
from cutaway.server.openai.sampling_fields import SamplingFields, sampled

DEFAULT_TOKENS: Final = 16


class CompletionRequest(SamplingFields, FormFields, ReplyFields):
    """Texts to be completed."""

    prompt: Any = Field(
        description="A text, a list of texts, a list of token ids, or a list of such lists.",
        json_schema_extra=PROMPT_SCHEMA,
    )
    logprobs: Any = sampled("logprobs")
    echo: bool | None = Field(None, description="Begin the answer with the prompt; with logprobs, with the prompt's.")
    max_tokens: Any = sampled("max_tokens")
    best_of: Any = Field(None, description="Must be n: no answer is thrown away.")

    @property
    def echo_only(self) -> bool:
        """Whether nothing is to be generated: the prompt's logprobs are all that is wanted."""
        return bool(self.echo) and type(self.max_tokens) is int and self.max_tokens == 0

    def check(self) -> None:
        """Refuse what doesn't fit together."""
        if self.best_of is not None and self.best_of != (1 if self.n is None else self.n):
            raise ApiError(
                400,
                f"best_of is {shown(self.best_of)} and n {shown(1 if self.n is None else self.n)}; they must be the "
                "same. Ask for n answers and choose.",
                "best_of",
                "unsupported_parameter",
            )
