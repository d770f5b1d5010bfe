"""What has come of a request so far, put together.

In: its events. Out: statistics and the whole output, at any time.
"""

from cutaway.engine.choice import named
from cutaway.engine.generation import Event, Generation
from cutaway.engine.outputs import (
    CompletionOutput,
    Delta,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    FinishReason,
    Logprob,
    RequestOutput,
    Statistics,
)
from cutaway.errors import CutawayError
from cutaway.tokenizer.tokenizer import Tokenizer


class Received:
    """Whoever asked takes the events; the engine's thread may be ahead of that."""

    def __init__(self, generation: Generation, prompt: str | None, tokenizer: Tokenizer, position_bytes: int) -> None:
        """position_bytes: of the KV cache."""
        self.generation = generation
        self._prompt, self._tokenizer, self._position_bytes = prompt, tokenizer, position_bytes
        self._deltas: dict[int, list[Delta]] = {}
        self._num_tokens = 0
        self._first: Event | None = None
        self._last: Event | None = None
        self._told: dict[int, float] = {}  # when the last token of a choice came
        self._longest_pause = 0.0

    def take(self, event: Event) -> Delta:
        """The next event."""
        delta = event.delta
        self._deltas.setdefault(delta.index, []).append(delta)
        self._num_tokens += len(delta.token_ids)
        if delta.token_ids or delta.finish_reason == "stop":  # that of an embedding has no token
            self._first = self._first or event
            self._last = event
            before = self._told.get(delta.index, event.seconds)
            self._longest_pause = max(self._longest_pause, event.seconds - before)
            self._told[delta.index] = event.seconds
        return delta

    @property
    def finished(self) -> bool:
        """Whether every choice has come to its end."""
        deltas = self._deltas.values()
        return len(deltas) == self.generation.asked.params.n and all(each[-1].finish_reason for each in deltas)

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the last choice has ended, of those that have come so far."""
        return self._deltas[max(self._deltas)][-1].finish_reason if self._deltas else None

    def statistics(self) -> Statistics:
        """Counts and times so far."""
        generation, first, last = self.generation, self._first, self._last
        submitted, begun = generation.submitted, generation.begun
        return Statistics(
            prompt_tokens=len(generation.asked.prompt_ids),
            cached_tokens=generation.num_cached_tokens if first else 0,
            generated_tokens=self._num_tokens,
            waiting_seconds=begun - submitted if first and begun is not None and submitted is not None else 0.0,
            prefill_seconds=first.seconds - begun if first and begun is not None else 0.0,
            decode_seconds=last.seconds - first.seconds if first and last else 0.0,
            longest_pause=self._longest_pause,
            kv_reserved_bytes=last.kv_reserved * self._position_bytes if last else 0,
            kv_used_bytes=last.kv_used * self._position_bytes if last else 0,
        )

    @property
    def tap_bytes(self) -> int:
        """What its taps will keep, at most; 0 without."""
        watched = self.generation.watched
        return 0 if watched is None else watched.watch.num_bytes

    def output(self) -> RequestOutput:
        """The request's output so far; one entry for each choice that has begun."""
        asked = self.generation.asked
        statistics = self.statistics()
        return RequestOutput(
            request_id=self.generation.request_id,
            prompt=self._prompt,
            prompt_token_ids=list(asked.prompt_ids),
            prompt_logprobs=self._prompt_logprobs(),
            outputs=[self._choice(index) for index in sorted(self._deltas) or [0]],
            finished=self.finished,
            num_cached_tokens=statistics.cached_tokens,
            seed=asked.seed,
            statistics=statistics,
            taps=None if self.generation.watched is None else self.generation.watched.watch.result(),
            record=self.generation.summary if self.finished else None,
        )

    def embedding(self) -> EmbeddingRequestOutput:
        """The prompt's embedding. Raises CutawayError if it did not come to its end."""
        vector, asked = self.generation.embedding, self.generation.asked
        assert asked.pooling is not None, "no embedding was asked for"
        if self.finish_reason != "stop":
            raise CutawayError(f"the embedding was ended before it was computed ({self.finish_reason}). Ask again.")
        assert vector is not None
        statistics = self.statistics()
        return EmbeddingRequestOutput(
            request_id=self.generation.request_id,
            outputs=EmbeddingOutput(vector.tolist(), asked.pooling),
            prompt=self._prompt,
            prompt_token_ids=list(asked.prompt_ids),
            num_cached_tokens=statistics.cached_tokens,
            finished=True,
            statistics=statistics,
        )

    def _choice(self, index: int) -> CompletionOutput:
        deltas = self._deltas.get(index, [])
        asked = self.generation.asked.params.logprobs is not None
        logprobs = [entries for delta in deltas for entries in delta.logprobs or ()]
        token_ids = [token for delta in deltas for token in delta.token_ids]
        cumulative = sum((entries[token].logprob for token, entries in zip(token_ids, logprobs, strict=False)), 0.0)
        return CompletionOutput(
            index=index,
            text="".join(delta.text for delta in deltas),
            token_ids=token_ids,
            cumulative_logprob=cumulative if asked else None,
            logprobs=logprobs if asked else None,
            finish_reason=deltas[-1].finish_reason if deltas else None,
            stop_reason=deltas[-1].stop_reason if deltas else None,
        )

    def _prompt_logprobs(self) -> list[dict[int, Logprob] | None] | None:
        if self.generation.asked.params.prompt_logprobs is None or self._first is None:
            return None
        scores = self.generation.scores
        return [None, *(named(scores[position], self._tokenizer) for position in sorted(scores))]
