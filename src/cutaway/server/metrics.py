"""What the server counts, for Prometheus: names and meanings as vLLM's, with another prefix.

In: requests as they begin, go on and end; the engine's state when somebody asks. Out: the text of the exposition.
Source: vLLM, "Production Metrics"; the Prometheus exposition format 0.0.4.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from cutaway.engine.core import EngineCore
from cutaway.engine.outputs import Statistics

MODEL: Final = ("model_name",)
SECONDS: Final = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
GAPS: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12)
TOKENS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
CHOICES: Final = (1, 2, 5, 10, 20, 50, 100)


class EngineState(NamedTuple):
    """What the engine says of itself between two steps."""

    running: int  # sequences
    waiting: int  # choices
    kv_usage: float  # part of the KV pool's blocks that somebody holds
    preemptions: int  # so far

    @classmethod
    def of(cls, core: EngineCore) -> "EngineState":
        """Of a core, by its thread."""
        reserved, _ = core.scheduler.kv_positions()
        blocks = core.scheduler.blocks
        return cls(
            core.scheduler.num_running,
            core.scheduler.num_waiting,
            reserved / (blocks.num_blocks * blocks.block_length),
            core.scheduler.num_preemptions,
        )


class Metrics:
    """All metrics of one model."""

    def __init__(self, model_name: str) -> None:
        self._registry, self._model = CollectorRegistry(), model_name

        def counters(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"cutaway:{name}", meaning, (*MODEL, *labels), registry=self._registry)

        def counter(name: str, meaning: str) -> Counter:
            return counters(name, meaning).labels(model_name)

        def gauge(name: str, meaning: str) -> Gauge:
            return Gauge(f"cutaway:{name}", meaning, MODEL, registry=self._registry).labels(model_name)

        def histogram(name: str, meaning: str, buckets: Sequence[float]) -> Histogram:
            made = Histogram(f"cutaway:{name}", meaning, MODEL, buckets=buckets, registry=self._registry)
            return made.labels(model_name)

        self._running = gauge("num_requests_running", "Sequences that are being computed.")
        self._waiting = gauge("num_requests_waiting", "Sequences that wait for their turn.")
        self._kv_usage = gauge("kv_cache_usage_perc", "Part of the KV pool that is held; 1 is all of it.")
        self._preemptions = counter("num_preemptions", "Sequences that had to wait again, so that others could go on.")
        self._preempted = 0  # as it was told last
        self._prompt_tokens = counter("prompt_tokens", "Tokens of prompts whose computation has ended.")
        self._generation_tokens = counter("generation_tokens", "Tokens that were generated.")
        self._queries = counter("prefix_cache_queries", "Tokens of prompts that were looked up in the prefix cache.")
        self._hits = counter("prefix_cache_hits", "Those of them that were there.")
        self._ended = counters("request_success", "Answers that have ended, by the reason.", "finished_reason")
        self._first_token = histogram("time_to_first_token_seconds", "From arrival to the first token.", SECONDS)
        self._gap = histogram("inter_token_latency_seconds", "Between two tokens of an answer.", GAPS)
        self._whole = histogram("e2e_request_latency_seconds", "From arrival to the end.", SECONDS)
        self._queue = histogram("request_queue_time_seconds", "From arrival to the first step.", SECONDS)
        self._prefill = histogram("request_prefill_time_seconds", "From there to the first token.", SECONDS)
        self._decode = histogram("request_decode_time_seconds", "From there to the last.", SECONDS)
        self._prompt_length = histogram("request_prompt_tokens", "Tokens of a prompt.", TOKENS)
        self._answer_length = histogram("request_generation_tokens", "Tokens of a prompt's answers.", TOKENS)
        self._choices = histogram("request_params_n", "Answers that a request asks for.", CHOICES)
        self._refused = counter("requests_refused", "Requests that found the waiting queue full.")
        self._by_key = counters("key_tokens", "Tokens by API key, whose name is made from it.", "key", "kind")

    def refused(self) -> None:
        """A request found the queue full."""
        self._refused.inc()

    def prompt_computed(self, statistics: Statistics) -> None:
        """A prompt is computed."""
        self._prompt_tokens.inc(statistics.prompt_tokens)
        self._queries.inc(statistics.prompt_tokens)
        self._hits.inc(statistics.cached_tokens)

    def first_token(self, statistics: Statistics) -> None:
        """A prompt has its first token."""
        self._first_token.observe(statistics.waiting_seconds + statistics.prefill_seconds)

    def tokens(self, count: int, gap: float | None) -> None:
        """So many tokens of an answer have come. gap: seconds since the ones before."""
        self._generation_tokens.inc(count)
        if gap is not None:
            self._gap.observe(gap)

    def answer_ended(self, reason: str) -> None:
        """An answer has ended."""
        self._ended.labels(self._model, reason).inc()

    def request_ended(self, statistics: Statistics, choices: int, seconds: float, key: str) -> None:
        """A prompt's answers have all ended. seconds: since it arrived. key: the API key's name."""
        self._whole.observe(seconds)
        self._choices.observe(choices)
        self._prompt_length.observe(statistics.prompt_tokens)
        self._answer_length.observe(statistics.generated_tokens)
        if statistics.generated_tokens:
            self._queue.observe(statistics.waiting_seconds)
            self._prefill.observe(statistics.prefill_seconds)
            self._decode.observe(statistics.decode_seconds)
        self._by_key.labels(self._model, key, "prompt").inc(statistics.prompt_tokens)
        self._by_key.labels(self._model, key, "generation").inc(statistics.generated_tokens)

    def exposition(self, state: EngineState) -> bytes:
        """All of it as text."""
        self._running.set(state.running)
        self._waiting.set(state.waiting)
        self._kv_usage.set(state.kv_usage)
        self._preemptions.inc(state.preemptions - self._preempted)
        self._preempted = state.preemptions
        return generate_latest(self._registry)
