"""Speeds of one engine or of several in turn, in llama-bench's terms: pp512 is a prompt of 512 tokens, tg128 an answer
of 128 from an empty context, 16×tg32 sixteen answers of 32 together.

In: engines, each a function from a request to the arrivals of its tokens. Out: for each workload the rates of each
engine, in tokens a second, round by round.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from cutaway.audit.llama_cpp_process import Arrivals, Prompts
from cutaway.audit.workloads import STRIDE
from cutaway.ops.cpu.kv_tiles import SUBTILE

OURS: Final = "Cutaway"
SEQUENCES: Final = 16
ANSWER_TOKENS: Final = 128
BATCH_TOKENS: Final = 32  # of each of them

Measure = Callable[[Prompts, int], Arrivals]


@dataclass(frozen=True)
class Workload:
    """What is asked for. Prefill is timed to the first new token; an answer from the request to its end, or, where the
    prompt is not a part of what is measured, from the first new token on.
    """

    name: str
    sequences: int
    prompt_tokens: int
    new_tokens: int
    counts: str  # "prompt", "answer" or "after first"

    def rate(self, arrivals: Arrivals) -> float:
        """Tokens a second, of all sequences together."""
        (first_time, first_count), (last_time, last_count) = arrivals[0], arrivals[-1]
        if self.counts == "prompt":
            return self.sequences * self.prompt_tokens / first_time
        if self.counts == "answer":
            return last_count / last_time
        return (last_count - first_count) / (last_time - first_time)


@dataclass(frozen=True)
class Speed:
    """One workload's rates: engine → tokens a second in each round."""

    workload: Workload
    rates: Mapping[str, tuple[float, ...]]

    def median(self, engine: str) -> float:
        """Tokens a second."""
        return statistics.median(self.rates[engine])

    def ratios(self, engine: str, other: str) -> list[float]:
        """How many times as fast as the other, round by round."""
        return [a / b for a, b in zip(self.rates[engine], self.rates[other], strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self.workload), "tokens_per_second": {name: list(each) for name, each in self.rates.items()}}


def workloads(prompt: int, context: int, positions: int) -> list[Workload]:
    """The three of llama-bench, shortened to what a context, and a KV cache of so many positions in all, can hold."""
    answer, together = min(ANSWER_TOKENS, context), min(BATCH_TOKENS, context)
    sequences = min(SEQUENCES, positions // (-(-together // SUBTILE) * SUBTILE))
    return [
        Workload(f"pp{prompt}", 1, prompt, 1, "prompt"),
        Workload(f"tg{answer}", 1, 1, answer, "answer"),
        Workload(f"{sequences}×tg{together}", sequences, 1, together, "answer"),
    ]


def prompts_of(workload: Workload, vocab_size: int) -> list[list[int]]:
    """Arbitrary ids, others for each sequence, always the same."""
    length = workload.prompt_tokens
    return [
        [STRIDE * (number * length + place + 1) % vocab_size for place in range(length)]
        for number in range(workload.sequences)
    ]


def measure_speeds(
    engines: Mapping[str, Measure],
    works: Sequence[Workload],
    vocab_size: int,
    rounds: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Speed]:
    """All workloads on all engines in each round; the engine that begins rotates. A round before the first warms up."""
    rates: list[dict[str, list[float]]] = [{name: [] for name in engines} for _ in works]
    names = list(engines)
    for number in range(-1, rounds):
        progress(max(number, 0), rounds)
        turn = max(number, 0) % len(names)
        for work, found in zip(works, rates, strict=True):
            prompts = prompts_of(work, vocab_size)
            for name in names[turn:] + names[:turn]:
                rate = work.rate(engines[name](prompts, work.new_tokens))
                if number >= 0:
                    found[name].append(rate)
    return [
        Speed(work, {name: tuple(each) for name, each in found.items()})
        for work, found in zip(works, rates, strict=True)
    ]
