"""What a request gives back, in the shape of vLLM's outputs.

In: tokens as they are generated. Out: deltas while streaming, a ``RequestOutput`` at the end.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

FinishReason: TypeAlias = Literal["stop", "length"]


@dataclass(frozen=True)
class Logprob:
    """The natural logarithm of a token's probability under the model's own distribution."""

    logprob: float
    rank: int  # 1 is the most likely
    decoded_token: str


@dataclass(frozen=True)
class Delta:
    """What one step added. The texts of all deltas join to the whole text."""

    text: str  # may be empty while a character is incomplete
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: FinishReason | None = None  # set on the last delta


@dataclass(frozen=True)
class Statistics:
    """Counts and seconds of one request."""

    prompt_tokens: int
    generated_tokens: int
    prefill_seconds: float  # from the start to the first token's logits
    decode_seconds: float  # from then to the end

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens per second."""
        return self.prompt_tokens / self.prefill_seconds if self.prefill_seconds > 0 else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens per second after the first."""
        steps = self.generated_tokens - 1
        return steps / self.decode_seconds if steps > 0 and self.decode_seconds > 0 else 0.0


@dataclass(frozen=True)
class CompletionOutput:
    """One completion of a prompt."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None  # None where no logprobs were asked for
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: FinishReason | None


@dataclass(frozen=True)
class RequestOutput:
    """A prompt and its completions. ``seed`` is the one in effect, drawn afresh where none was given."""

    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    seed: int
    statistics: Statistics
    finished: bool = field(default=True)
