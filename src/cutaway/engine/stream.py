"""A request while it runs: an iterator of deltas, one for each token of each of its choices.

In: prompt ids, sampling parameters. Out: deltas, statistics, and the whole output at any time.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cutaway.engine.completion import Completion, named
from cutaway.engine.generate import GeneratedToken, Steps, generate_tokens, score_prompt
from cutaway.engine.outputs import Delta, FinishReason, Logprob, RequestOutput, Statistics
from cutaway.engine.turns import Turns
from cutaway.memory.sequence_cache import SequenceCache
from cutaway.sampling.forbidden import bad_word_ids, stop_ids
from cutaway.sampling.params import SamplingParams, fresh_seed
from cutaway.sampling.row import SamplerScratch
from cutaway.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class EngineParts:
    """What a request needs of the engine that computes it."""

    runner: Steps
    cache: SequenceCache
    position_bytes: int  # of the KV cache
    scratch: SamplerScratch


class Stream:
    """One request while it runs. Stop iterating at any time; ``output`` has what came so far.

    It knows the seed in effect. The choices of a request with ``n`` above 1 are generated one after the other. An error
    in a step, or Ctrl-C, ends it. Threads may share it: each delta goes to one of them, and any may close it; a step
    that is being computed then keeps the engine to its end, since it still writes.
    """

    def __init__(
        self,
        usable: Callable[[], EngineParts],
        turns: Turns,
        tokenizer: Tokenizer,
        request_id: str,
        prompt: str | None,
        prompt_ids: list[int],
        params: SamplingParams,
    ) -> None:
        """usable: gives the engine's parts, or raises if they can't be used any more."""
        self.request_id, self.prompt, self.prompt_token_ids, self.params = request_id, prompt, prompt_ids, params
        self.seed = fresh_seed() if params.seed is None else params.seed
        self.prompt_logprobs: list[dict[int, Logprob] | None] | None = None
        self._usable, self._turns, self._tokenizer = usable, turns, tokenizer
        self._ticket = object()
        self._step_lock = threading.RLock()  # reentrant: a signal handler that closes the stream must not wait
        self._in_step = False
        self._stop_ids = stop_ids(params, tokenizer.eos_ids)
        self._bad_words = bad_word_ids(params.bad_words, lambda text: tokenizer.encode(text, add_bos=False))
        self._completions: list[Completion] = []
        self._generation: Iterator[GeneratedToken] = iter(())
        self._ended = False
        self._begin: float | None = None
        self._seconds: list[float] = []
        self._num_cached_tokens = 0
        self._kv_reserved = self._kv_used = 0

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Delta:
        try:
            with self._step_lock:
                if self._ended:
                    raise StopIteration
                try:
                    self._in_step = True
                    delta = self._step()
                    if delta.finish_reason is not None and len(self._completions) == self.params.n:
                        self._ended = True
                except BaseException:
                    self._ended = True
                    raise
                finally:
                    self._in_step = False
        finally:
            if self._ended:  # also where another thread closed it meanwhile
                self.close()
        return delta

    def run(self) -> RequestOutput:
        """All that is left, and the whole output."""
        for _ in self:
            pass
        return self.output()

    def close(self) -> None:
        """End the request, finished or not, and let others compute."""
        self._ended = True
        if self._step_lock.acquire(blocking=False):
            try:
                if not self._in_step:
                    self._generation = iter(())
                    self._turns.give_back(self._ticket)
            finally:
                self._step_lock.release()

    def __del__(self) -> None:
        if hasattr(self, "_ticket"):
            self.close()

    def _step(self) -> Delta:
        self._usable()
        self._turns.take(self._ticket)
        engine = self._usable()  # it may have been closed while we waited
        if self._begin is None:
            self._begin = time.perf_counter()
            self._score_prompt(engine)
        if not self._completions or self._completions[-1].finish_reason is not None:
            self._begin_choice(engine)
        token = next(self._generation)
        if not self._seconds and self.params.prompt_logprobs is None:
            self._num_cached_tokens = engine.cache.num_reused_tokens
        delta = self._completions[-1].add(token)
        self._seconds.append(time.perf_counter() - self._begin)
        self._kv_reserved = engine.cache.num_reserved_tokens * engine.position_bytes
        self._kv_used = engine.cache.num_cached_tokens * engine.position_bytes
        return delta

    def _score_prompt(self, engine: EngineParts) -> None:
        """The prompt's own logprobs, if they are asked for. They are computed anew, whatever the cache holds."""
        count = self.params.prompt_logprobs
        if count is None:
            return
        scores = score_prompt(engine.runner, engine.cache, self.prompt_token_ids, count, engine.scratch)
        self.prompt_logprobs = [None, *(named(score, self._tokenizer) for score in scores)]

    def _begin_choice(self, engine: EngineParts) -> None:
        index = len(self._completions)
        self._completions.append(Completion(index, self.prompt_token_ids, self.params, self._tokenizer))
        self._generation = generate_tokens(
            engine.runner,
            engine.cache,
            self.prompt_token_ids,
            self.params,
            self.seed,
            index,
            self._stop_ids,
            self._bad_words,
            engine.scratch,
        )

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the last choice begun has ended; None while it runs or when it was abandoned."""
        return self._completions[-1].finish_reason if self._completions else None

    def statistics(self) -> Statistics:
        """Counts and times so far."""
        first, last = (self._seconds[0], self._seconds[-1]) if self._seconds else (0.0, 0.0)
        return Statistics(
            prompt_tokens=len(self.prompt_token_ids),
            cached_tokens=self._num_cached_tokens,
            generated_tokens=len(self._seconds),
            prefill_seconds=first,
            decode_seconds=last - first,
            kv_reserved_bytes=self._kv_reserved,
            kv_used_bytes=self._kv_used,
        )

    def output(self) -> RequestOutput:
        """The request's output so far; one entry for each choice that has begun."""
        begun: Sequence[Completion] = self._completions or [
            Completion(0, self.prompt_token_ids, self.params, self._tokenizer)
        ]
        finished = sum(each.finish_reason is not None for each in self._completions)
        return RequestOutput(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=self.prompt_token_ids,
            prompt_logprobs=self.prompt_logprobs,
            outputs=[each.output() for each in begun],
            finished=finished == self.params.n,
            num_cached_tokens=self._num_cached_tokens,
            seed=self.seed,
            statistics=self.statistics(),
        )
