"""One choice of a request while it is computed: logits become a token, tokens become text, and something ends it.

In: the logits after its last token. Out: a delta for each token. What it needs to go on is here alone, so its keys and
values may be dropped and computed again at any time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cutaway.engine.outputs import Delta, FinishReason, Logprob
from cutaway.engine.pooling import Pooling
from cutaway.grammar.grammar import Grammar
from cutaway.grammar.state import GrammarState
from cutaway.ops.cpu.arrays import Floats, Ints
from cutaway.sampling.forbidden import NO_BAD_WORDS, BadWords, forbidden_ids
from cutaway.sampling.history import EMPTY_HISTORY, NO_IDS, History
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.sampler import NoiseKey, Row, SampleResult
from cutaway.tokenizer.stop_strings import StopStrings
from cutaway.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Asked:
    """What a request asks for, the same for each of its choices."""

    prompt_ids: Sequence[int]
    params: SamplingParams
    seed: int  # in effect
    max_new_tokens: int  # of max_tokens and what the context leaves, the lower
    stop_ids: frozenset[int]  # that end it; the one that does is its last token
    bad_words: BadWords
    pooling: Pooling | None = None  # in place of an answer: the prompt's embedding
    shown_ids: frozenset[int] = frozenset()  # control tokens that are in the text nevertheless
    grammar: Grammar | None = None  # that the answer must be of


class Choice:
    """Noise is a function of (seed, choice, the new token's position, candidate), so it needs no state."""

    def __init__(self, index: int, asked: Asked, tokenizer: Tokenizer) -> None:
        params = asked.params
        self.index = index
        self.num_tokens = 0
        self._asked, self._tokenizer = asked, tokenizer
        self._reads_history = _reads_history(asked)
        self._state: GrammarState | None = None  # of the answer so far, from the first token on
        self._ids: Ints = np.zeros(len(asked.prompt_ids) + asked.max_new_tokens, np.int32)
        self._ids[: len(asked.prompt_ids)] = asked.prompt_ids
        self._detokenizer = tokenizer.detokenizer(
            prompt_ids=asked.prompt_ids, skip_special=params.skip_special_tokens, shown=asked.shown_ids
        )
        self._stops = StopStrings(params.stop or (), include=params.include_stop_str_in_output)

    def row(self, logits: Floats, is_scored: bool) -> Row:
        """By what the next token is chosen; logits: [V], of the last one. is_scored: its log-probability is wanted,
        whether the request asks for it or not. Good until ``take``.
        """
        asked, first = self._asked, len(self._asked.prompt_ids)
        position = first + self.num_tokens
        history = EMPTY_HISTORY
        if self._reads_history:
            prompt, output = self._ids[:first], self._ids[first:position]
            if self._state is None and asked.grammar is not None:
                self._state = asked.grammar.start(filter(self._tokenizer.is_special, asked.stop_ids))
            forbidden = forbidden_ids(asked.params, asked.bad_words, output, asked.stop_ids)
            history = History(prompt, output, forbidden, NO_IDS if self._state is None else self._state.allowed)
        return Row(logits, asked.params, NoiseKey(asked.seed, self.index, position), history, is_scored)

    def take(self, sample: SampleResult) -> Delta:
        """The token that was chosen.

        A stop string that it completes wins over its own reason to end, and the end of the grammar over the last token
        that was asked for.
        """
        asked, token = self._asked, sample.token_id
        self._ids[len(asked.prompt_ids) + self.num_tokens] = token
        self.num_tokens += 1
        finish: FinishReason | None = None
        stop: int | str | None = None
        if token in asked.stop_ids:
            finish = "stop"
            stop = token if token in (asked.params.stop_token_ids or ()) else None
        elif self._state is not None and self._state.finished_by(token):
            finish = "stop"
        elif self.num_tokens == asked.max_new_tokens:
            finish = "length"
        text = ""
        if asked.params.detokenize:
            text = self._text(token, finish)
            if self._stops.match is not None:
                finish, stop = "stop", self._stops.match.stop
        logprobs = None if asked.params.logprobs is None else [named(sample, self._tokenizer)]
        return Delta(text, [token], logprobs, finish, self.index, stop)

    def _text(self, token: int, finish: FinishReason | None) -> str:
        """What became certain with this token. A stop id is no text, unless the stop is asked for in the output."""
        params = self._asked.params
        written = token not in self._asked.stop_ids or params.include_stop_str_in_output
        piece = self._detokenizer.push(token) if written else ""
        if finish is not None:
            piece += self._detokenizer.flush()
        text = self._stops.push(piece, may_stop=self.num_tokens > params.min_tokens)
        if finish is not None and self._stops.match is None:
            text += self._stops.flush()
        return text

    def cut(self, reason: FinishReason) -> Delta:
        """The end, from outside, with the text that was held back."""
        text = ""
        if self._asked.params.detokenize:
            text = self._stops.push(self._detokenizer.flush(), may_stop=False) + self._stops.flush()
        return Delta(text, [], None, reason, self.index)


def _reads_history(asked: Asked) -> bool:
    """Whether the tokens so far have a part in what is chosen next."""
    params = asked.params
    penalties = params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0
    bound = asked.grammar is not None or asked.bad_words != NO_BAD_WORDS
    return penalties or bound or params.min_tokens > 0


def named(sample: SampleResult, tokenizer: Tokenizer) -> dict[int, Logprob]:
    """The logprobs of one position, the likeliest tokens' and the given token's, with their pieces of text."""

    def entry(token_id: int, logprob: float, rank: int) -> Logprob:
        return Logprob(logprob, rank, tokenizer.decode([token_id], skip_special=False))

    assert sample.logprob is not None, "logprobs were asked for"
    assert sample.rank is not None
    best = {token_id: entry(token_id, value, rank) for rank, (token_id, value) in enumerate(sample.top_logprobs, 1)}
    return {**best, sample.token_id: entry(sample.token_id, sample.logprob, sample.rank)}
