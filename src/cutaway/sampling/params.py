"""What a request may ask of the sampler. The names and defaults are those of vLLM's ``SamplingParams``.

In: keyword arguments. Out: a frozen record of plain values that have been checked, or an InvalidRequestError that
names the field, its value and its limits. Each field is declared once, with its check and its meaning;
``params_table`` makes the table of the documentation from that.
"""

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, get_type_hints

import numpy as np

from cutaway.errors import InvalidRequestError
from cutaway.sampling.params_checks import Biases, Check, Flag, Ids, Integer, Number, Texts, refuse_outside, shown
from cutaway.sampling.params_record import MOST_TOP_K, NO_LOGPROBS, OWN_LOGPROB, SMALLEST_NORMAL, ParamsRecord
from cutaway.sampling.structured_outputs import Form, StructuredOutputsParams
from cutaway.sampling.unsupported import refuse_by_name

HIGHEST_TEMPERATURE: Final = 100.0
HIGHEST_REPETITION: Final = 100.0
MOST_LOGPROBS: Final = 20
MOST_CHOICES: Final = 4096
MOST_STOPS: Final = 64
MOST_BAD_WORDS: Final = 1000
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@refuse_by_name
@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen, and when a request ends.

    Lists are kept as tuples without duplicates, None where they are empty. Raises InvalidRequestError for a value
    outside its range or of another type (a bool is not a number here), and for a parameter that is not one of these.
    """

    n: Annotated[
        int,
        Integer(1, MOST_CHOICES, "Ask for at least one answer, and for more in several requests."),
        "How many answers to give, each with noise of its own. At temperature 0 they are all the same.",
    ] = 1
    presence_penalty: Annotated[
        float,
        Number(-2.0, 2.0, "Use 0 for none."),
        "Subtracted from the logit of each token that was generated so far.",
    ] = 0.0
    frequency_penalty: Annotated[
        float,
        Number(-2.0, 2.0, "Use 0 for none."),
        "Subtracted from the logit of a token as many times as it was generated so far.",
    ] = 0.0
    repetition_penalty: Annotated[
        float,
        Number(0.0, HIGHEST_REPETITION, "Use 1 for none.", exclusive=True),
        "The logit of each token of the prompt and of those generated so far is divided by it where it is above 0, and "
        "multiplied where it is not, once a token (Keskar et al. 2019).",
    ] = 1.0
    temperature: Annotated[
        float,
        Number(0.0, HIGHEST_TEMPERATURE, "Use 0 for the likeliest token, 1 for the model's."),
        "Logits are divided by it; 0 takes the token with the largest logit, the lowest id among equals.",
    ] = 1.0
    top_p: Annotated[
        float,
        Number(0.0, 1.0, "Use 1 to keep all tokens.", exclusive=True),
        "Keep the fewest likeliest tokens whose probabilities sum to at least this (Holtzman et al. 2020); 1: all.",
    ] = 1.0
    top_k: Annotated[
        int,
        Integer(-1, None, "Use 0 to keep all tokens."),
        "Keep the k likeliest tokens; 0 or -1: all. More than the vocabulary has means all.",
    ] = 0
    min_p: Annotated[
        float,
        Number(0.0, 1.0, "Use 0 to keep all tokens."),
        "Keep the tokens at least this times as likely as the likeliest (Nguyen et al. 2024); 0: all.",
    ] = 0.0
    seed: Annotated[
        int | None,
        Integer(INT64_MIN, INT64_MAX, "Leave it out for a fresh one.", optional=True),
        "Any int64, -1 among them: each is a seed like any other. None: a fresh one, which the engine echoes.",
    ] = None
    stop: Annotated[
        Sequence[str] | None,
        Texts(MOST_STOPS, "Leave it out for none.", one=True),
        "Texts that end the answer; what is returned ends before them.",
    ] = None
    stop_token_ids: Annotated[
        Sequence[int] | None,
        Ids("Leave it out for none."),
        "Tokens that end the answer, beside the model's own.",
    ] = None
    ignore_eos: Annotated[
        bool,
        Flag("Leave it out for false."),
        "Go on after an end-of-sequence token of the model.",
    ] = False
    max_tokens: Annotated[
        int | None,
        Integer(1, None, "Ask for at least one token.", optional=True),
        "The most tokens to generate; None: as many as the context holds.",
    ] = 16
    min_tokens: Annotated[
        int,
        Integer(0, None, "Use 0 to let the answer end at once."),
        "Tokens that would end the answer are masked until so many were generated. At most max_tokens.",
    ] = 0
    logprobs: Annotated[
        int | None,
        Integer(0, MOST_LOGPROBS, "Leave it out for none.", optional=True),
        "Report the log-probability of each chosen token and of this many of the likeliest. None: neither.",
    ] = None
    prompt_logprobs: Annotated[
        int | None,
        Integer(0, MOST_LOGPROBS, "Leave it out for none.", optional=True),
        "The same for each token of the prompt but the first.",
    ] = None
    detokenize: Annotated[
        bool,
        Flag("Leave it out for true."),
        "Give the answer as text, too. False: as ids alone; stop needs the text.",
    ] = True
    skip_special_tokens: Annotated[
        bool,
        Flag("Leave it out for true."),
        "Leave special tokens out of the text.",
    ] = True
    include_stop_str_in_output: Annotated[
        bool,
        Flag("Leave it out for false."),
        "Let the text end with the stop text that ended it.",
    ] = False
    logit_bias: Annotated[
        Mapping[int, float] | None,
        Biases(-100.0, 100.0, "Use -100 to ban a token and 100 to force it, where logits lie as usual."),
        "Added to the logits of these tokens, before all other steps. A token that can't be drawn stays so.",
    ] = field(default=None, hash=False)
    allowed_token_ids: Annotated[
        Sequence[int] | None,
        Ids("Leave it out to allow all.", may_be_empty=False),
        "All other tokens are masked. None: none is.",
    ] = None
    bad_words: Annotated[
        Sequence[str] | None,
        Texts(MOST_BAD_WORDS, "Leave it out for none."),
        "A token that would complete one of these, with or without a space before it, is masked.",
    ] = None
    structured_outputs: Annotated[
        StructuredOutputsParams | None,
        Form("Leave it out for any text."),
        "The form of the answer: tokens that would leave it are masked, and the answer ends where nothing can follow.",
    ] = None

    def __post_init__(self) -> None:
        for name, check in CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequestError(
                f"min_tokens is {shown(self.min_tokens)}; max_tokens is {self.max_tokens}, and there can't be fewer. "
                "Lower min_tokens or raise max_tokens.",
                "min_tokens",
            )
        if self.stop and not self.detokenize:
            raise InvalidRequestError(
                "stop is given and detokenize is false; texts can only be found in a text. Use stop_token_ids, or "
                "leave detokenize out.",
                "stop",
            )

    @functools.cached_property
    def record(self) -> ParamsRecord:
        """The same for compiled code."""
        biases = self.logit_bias or {}
        return ParamsRecord(
            bias_ids=np.array(list(biases), np.int32),
            bias_values=np.array(list(biases.values()), np.float32),
            allowed_ids=np.array(self.allowed_token_ids or (), np.int32),
            repetition=max(self.repetition_penalty, SMALLEST_NORMAL),
            presence=self.presence_penalty,
            frequency=self.frequency_penalty,
            temperature=self.temperature,
            top_k=min(self.top_k, MOST_TOP_K),
            top_p=self.top_p,
            min_p=self.min_p,
            num_logprobs=NO_LOGPROBS if self.logprobs is None else self.logprobs,
        )

    @functools.cached_property
    def scored_record(self) -> ParamsRecord:
        """The same where the token's log-probability is wanted in any case."""
        return self.record if self.logprobs is not None else self.record._replace(num_logprobs=OWN_LOGPROB)


def declarations() -> dict[str, tuple[Any, Check, str]]:
    """Of each field: its type, its check, its meaning."""
    hints = get_type_hints(SamplingParams, include_extras=True)
    return {name: (hint.__origin__, *hint.__metadata__) for name, hint in hints.items()}


CHECKS: Final = {name: check for name, (_, check, _) in declarations().items()}


def check_against_vocabulary(params: SamplingParams, vocab_size: int) -> None:
    """Refuse ids that the model's vocabulary doesn't have, before the request is admitted.

    Raises InvalidRequestError with the field, the first of the ids and the limit.
    """
    refuse_outside("logit_bias", params.logit_bias or (), vocab_size)
    refuse_outside("allowed_token_ids", params.allowed_token_ids or (), vocab_size)
    refuse_outside("stop_token_ids", params.stop_token_ids or (), vocab_size)


def fresh_seed() -> int:
    """A seed from the operating system's randomness: 63 bits, so that it is a non-negative int64."""
    return int.from_bytes(os.urandom(8), "little") >> 1
