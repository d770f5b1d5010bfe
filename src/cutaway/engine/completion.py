"""One choice of a request while it is generated: tokens become text, stop strings end it, logprobs get their names.

In: generated tokens, one by one. Out: a delta for each; the whole ``CompletionOutput`` at any time.
"""

from collections.abc import Sequence

from cutaway.engine.generate import GeneratedToken
from cutaway.engine.outputs import CompletionOutput, Delta, FinishReason, Logprob
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.sampler import SampleResult
from cutaway.tokenizer.stop_strings import StopStrings
from cutaway.tokenizer.tokenizer import Tokenizer


class Completion:
    """Collects one choice. A stop string that the last token completes wins over that token's own finish reason."""

    def __init__(self, index: int, prompt_ids: Sequence[int], params: SamplingParams, tokenizer: Tokenizer) -> None:
        self.index = index
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        self.token_ids: list[int] = []
        self._params, self._tokenizer = params, tokenizer
        self._detokenizer = tokenizer.detokenizer(prompt_ids=prompt_ids, skip_special=params.skip_special_tokens)
        self._stops = StopStrings(params.stop or (), include=params.include_stop_str_in_output)
        self._texts: list[str] = []
        self._logprobs: list[dict[int, Logprob]] = []
        self._cumulative = 0.0

    def add(self, token: GeneratedToken) -> Delta:
        """Take the next token in."""
        self.token_ids.append(token.token_id)
        self.finish_reason = token.finish_reason
        if token.finish_reason == "stop" and token.token_id in (self._params.stop_token_ids or ()):
            self.stop_reason = token.token_id
        text = self._text(token) if self._params.detokenize else ""
        self._texts.append(text)
        logprobs = None
        if self._params.logprobs is not None:
            logprobs = [named(token.sample, self._tokenizer)]
            self._logprobs += logprobs
            self._cumulative += logprobs[0][token.token_id].logprob
        return Delta(text, [token.token_id], logprobs, self.finish_reason, self.index)

    def _text(self, token: GeneratedToken) -> str:
        """What became certain with this token. A stop id is no text, unless the stop is asked for in the output."""
        ended_by_id = token.finish_reason == "stop"
        written = not ended_by_id or self._params.include_stop_str_in_output
        piece = self._detokenizer.push(token.token_id) if written else ""
        if token.finish_reason is not None:
            piece += self._detokenizer.flush()
        text = self._stops.push(piece, may_stop=len(self.token_ids) > self._params.min_tokens)
        if self._stops.match is not None:
            self.finish_reason, self.stop_reason = "stop", self._stops.match.stop
        elif token.finish_reason is not None:
            text += self._stops.flush()
        return text

    def output(self) -> CompletionOutput:
        """The choice so far."""
        asked = self._params.logprobs is not None
        return CompletionOutput(
            index=self.index,
            text="".join(self._texts),
            token_ids=list(self.token_ids),
            cumulative_logprob=self._cumulative if asked else None,
            logprobs=list(self._logprobs) if asked else None,
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
        )


def named(sample: SampleResult, tokenizer: Tokenizer) -> dict[int, Logprob]:
    """The logprobs of one position, the likeliest tokens' and the given token's, with their pieces of text."""

    def entry(token_id: int, logprob: float, rank: int) -> Logprob:
        return Logprob(logprob, rank, tokenizer.decode([token_id], skip_special=False))

    assert sample.logprob is not None, "logprobs were asked for"
    assert sample.rank is not None
    best = {token_id: entry(token_id, value, rank) for rank, (token_id, value) in enumerate(sample.top_logprobs, 1)}
    return {**best, sample.token_id: entry(sample.token_id, sample.logprob, sample.rank)}
