"""What a request gives back, in the shape of vLLM's outputs.

In: tokens as they are generated. Out: deltas while streaming, a ``RequestOutput`` at the end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from cutaway.engine.pooling import Pooling

FinishReason: TypeAlias = Literal["stop", "length", "deadline", "abort"]
"""A stop id or stop string; ``max_tokens`` or the context's end; the request's deadline; an abort by somebody else."""


@dataclass(frozen=True)
class Logprob:
    """The natural logarithm of a token's probability under the model's own distribution."""

    logprob: float
    rank: int  # 1 is the most likely
    decoded_token: str


@dataclass(frozen=True)
class Delta:
    """What one step added to one choice. The texts of a choice's deltas join to its whole text."""

    text: str  # may be empty while a character, or what may be a stop string, is incomplete
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: FinishReason | None = None  # set on the choice's last delta
    index: int = 0  # of the choice
    stop_reason: int | str | None = None  # with "stop": the stop id or stop string; None for an end-of-sequence id


@dataclass(frozen=True)
class Statistics:
    """Counts and seconds of one request, all choices together."""

    prompt_tokens: int
    cached_tokens: int  # of the prompt: their keys and values were there and were not computed again
    generated_tokens: int
    waiting_seconds: float  # from when it was submitted until its first step began
    prefill_seconds: float  # from then to the first token
    decode_seconds: float  # from then to the end
    longest_pause: float  # seconds between two tokens of one choice at most
    kv_reserved_bytes: int  # of the pages that the sequence has after its last step
    kv_used_bytes: int  # of the positions in them that hold keys and values

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens computed per second."""
        computed = self.prompt_tokens - self.cached_tokens
        return computed / self.prefill_seconds if self.prefill_seconds > 0 else 0.0

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
    token_ids: list[int]  # with the stop id that ended it, if one did
    cumulative_logprob: float | None  # None where no logprobs were asked for
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: FinishReason | None
    stop_reason: int | str | None = None  # the stop id or stop string; None for an end-of-sequence id

    def finished(self) -> bool:
        """Whether it has come to its end."""
        return self.finish_reason is not None


@dataclass(frozen=True)
class TappedRows:
    """A tensor that was tapped: its rows, one for each position of the sequence that was asked for and computed."""

    positions: npt.NDArray[np.int32]  # [n], ascending
    values: npt.NDArray[Any]  # [n, …]; docs/taps.md has the shape and the type of each


@dataclass(frozen=True)
class RequestOutput:
    """A prompt and its completions. ``seed`` is the one in effect, drawn afresh where none was given."""

    request_id: str
    prompt: str | None  # None for a prompt of ids
    prompt_token_ids: list[int]
    prompt_logprobs: list[dict[int, Logprob] | None] | None  # None at the first token, which nothing precedes
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int  # of the prompt, as in ``statistics``
    seed: int
    statistics: Statistics
    taps: Mapping[str, TappedRows] | None = None  # by name, as "layers.3.attention"; None where none were asked for
    record: dict[str, Any] | None = None  # where requests are recorded: the receipt, or the error that ended the record


@dataclass(frozen=True)
class EmbeddingOutput:
    """A prompt as one vector of length 1."""

    embedding: list[float]  # [D], float32 values
    pooling: Pooling


@dataclass(frozen=True)
class EmbeddingRequestOutput:
    """A prompt and its embedding."""

    request_id: str
    outputs: EmbeddingOutput
    prompt: str | None  # None for a prompt of ids
    prompt_token_ids: list[int]
    num_cached_tokens: int  # of the prompt, as in ``statistics``
    finished: bool
    statistics: Statistics
