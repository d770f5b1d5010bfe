"""What a request may ask of the sampler. The names and defaults are those of vLLM's ``SamplingParams``.

In: keyword arguments. Out: a frozen record of plain ints and floats whose values have been checked, or an
InvalidRequestError that names the field, its value and its limits.
"""

import os
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Final

from cutaway.errors import InvalidRequestError

HIGHEST_TEMPERATURE: Final = 100.0
MOST_LOGPROBS: Final = 20
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen, and when a request ends.

    Raises InvalidRequestError for a value outside its range or of another type (a bool is not a number here).
    """

    temperature: float = 1.0
    """0 … 100. Logits are divided by it; 0 takes the token with the largest logit, the lowest id among equals."""
    top_k: int = 0
    """Keep the k likeliest tokens; 0 or -1: all. More than the vocabulary has means all."""
    top_p: float = 1.0
    """Above 0, at most 1. Keep the fewest likeliest tokens whose probabilities sum to at least this (Holtzman et al.
    2020); 1: all.
    """
    min_p: float = 0.0
    """0 … 1. Keep the tokens at least this times as likely as the likeliest (Nguyen et al. 2024); 0: all."""
    seed: int | None = None
    """Any int64, -1 among them: each is a seed like any other. None: a fresh one, which the engine echoes."""
    max_tokens: int | None = 16
    """The most tokens to generate, at least 1; None: as many as the context holds."""
    ignore_eos: bool = False
    """Go on after an end-of-sequence token."""
    logprobs: int | None = None
    """0 … 20: report the log-probability of each chosen token and of this many of the likeliest. None: neither."""

    def __post_init__(self) -> None:
        self._check_number("temperature", 0.0, HIGHEST_TEMPERATURE, "Use 0 for the likeliest token, 1 for the model's.")
        self._check_number("top_p", 0.0, 1.0, "Use 1 to keep all tokens.", exclusive=True)
        self._check_number("min_p", 0.0, 1.0, "Use 0 to keep all tokens.")
        self._check_integer("top_k", -1, None, "Use 0 to keep all tokens.")
        if self.max_tokens is not None:
            self._check_integer("max_tokens", 1, None, "Ask for at least one token.")
        if self.seed is not None:
            self._check_integer("seed", INT64_MIN, INT64_MAX, "Leave it out for a fresh one.")
        if self.logprobs is not None:
            self._check_integer("logprobs", 0, MOST_LOGPROBS, "Leave it out for none.")
        if not isinstance(self.ignore_eos, bool):
            raise InvalidRequestError(
                f"ignore_eos is {self.ignore_eos!r}; it must be true or false. Leave it out for false.", "ignore_eos"
            )

    def _check_number(self, field: str, low: float, high: float, remedy: str, exclusive: bool = False) -> None:
        value = getattr(self, field)
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        # A NaN fails every comparison, and an integer too large for a float is compared before it is converted.
        if not is_number or not low <= value <= high or (exclusive and value == low):
            limits = f"above {low:g} and at most {high:g}" if exclusive else f"from {low:g} to {high:g}"
            raise InvalidRequestError(f"{field} is {value!r}; it must be a number {limits}. {remedy}", field)
        object.__setattr__(self, field, float(value))

    def _check_integer(self, field: str, low: int, high: int | None, remedy: str) -> None:
        value = getattr(self, field)
        is_integer = isinstance(value, Integral) and not isinstance(value, bool)
        if not is_integer or value < low or (high is not None and value > high):
            limits = f"of at least {low}" if high is None else f"from {low} to {high}"
            raise InvalidRequestError(f"{field} is {value!r}; it must be an integer {limits}. {remedy}", field)
        object.__setattr__(self, field, int(value))


def fresh_seed() -> int:
    """A seed from the operating system's randomness: 63 bits, so that it is a non-negative int64."""
    return int.from_bytes(os.urandom(8), "little") >> 1
