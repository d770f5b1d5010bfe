"""The ladder: one workload on the same engine, each rung with one idea more.

In: a way to load an ``LLM``, a workload. Out: for each rung its settings, what changed, and what was measured. A rung
is a row of the settings of ``LLM``; there is one implementation.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Final

from cutaway.audit.workloads import STRIDE
from cutaway.engine.llm import LLM
from cutaway.engine.outputs import RequestOutput
from cutaway.errors import CapacityError
from cutaway.ops.cpu.kv_tiles import SUBTILE
from cutaway.sampling.params import SamplingParams

TOGETHER: Final = 8  # contexts that the KV pool holds, at every rung that batches
ROWS: Final = 32  # sequences that may run together where their memory allows it
SYSTEM: Final = 32  # tokens with which every prompt begins
SHORT: Final = 50  # tokens of a prompt, more or less
LONG: Final = 500
EVERY: Final = 12  # of so many requests, one is long
SHORT_ANSWERS: Final = (16, 24, 32, 48)
LONG_ANSWER: Final = 96


@dataclass(frozen=True)
class Rung:
    """Settings by which it differs from the rung below, and what that changes, in one sentence."""

    name: str
    settings: Mapping[str, Any]
    change: str
    parts: int = 1  # of so many requests, one is run


ONE: Final = {"max_num_seqs": 1, "kv": "contiguous", "enable_prefix_caching": False}
BATCH: Final = {**ONE, "max_num_seqs": TOGETHER}
FREE: Final = {**BATCH, "batching": "continuous", "enable_chunked_prefill": False}
PAGED: Final = {**FREE, "kv": "paged", "max_num_seqs": ROWS}

RUNGS: Final = (
    Rung(
        "no cache",
        {"max_num_seqs": 1, "kv": "none"},
        "One request at a time, and each token computes its whole context again. On a part of the workload.",
        parts=EVERY,
    ),
    Rung("KV cache", ONE, "Keys and values of the context are kept: a token costs a token."),
    Rung(
        "static batch",
        {"max_num_seqs": TOGETHER, "kv": "contiguous", "batching": "static"},
        "Eight requests share each pass over the weights; all are padded to the longest and wait for the slowest.",
    ),
    Rung(
        "bucketed",
        {"max_num_seqs": TOGETHER, "kv": "contiguous", "batching": "bucketed"},
        "Requests of similar length share a batch: fewer pads, and less waiting for the slowest.",
    ),
    Rung("continuous", FREE, "Whoever ends makes room at once: no pads, and nobody waits for the slowest."),
    Rung("paged", PAGED, "Memory is taken page by page as sequences grow, so more of them fit into the same pool."),
    Rung(
        "prefix cache",
        {**PAGED, "enable_prefix_caching": True},
        "The pages of the beginning that all prompts share are computed once.",
    ),
    Rung(
        "chunked prefill",
        {**PAGED, "enable_prefix_caching": True, "enable_chunked_prefill": True},
        "Chunks of prompts fill the steps of those who write: nobody's answer stands still for a long prompt.",
    ),
)


@dataclass(frozen=True)
class Workload:
    """Prompts of ids, and how many tokens each answer has."""

    prompts: Sequence[Sequence[int]]
    answers: Sequence[int]
    context: int

    def part(self, parts: int) -> list[int]:
        """The numbers of one request of each ``parts``: the second, which is short. All where ``parts`` is 1."""
        return list(range(1, len(self.prompts), parts)) if parts > 1 else list(range(len(self.prompts)))


def mixed_workload(requests: int, vocab_size: int) -> Workload:
    """One long request among many short ones, again and again; all begin with the same tokens."""

    def ids(first: int, count: int) -> list[int]:
        return [STRIDE * (first + place) % vocab_size for place in range(count)]

    prompts, answers = [], []
    for number in range(requests):
        is_long = number % EVERY == 0
        length = LONG if is_long else SHORT - 8 + number % 16
        prompts.append(ids(0, SYSTEM) + ids(1000 * (number + 1), length - SYSTEM))
        answers.append(LONG_ANSWER if is_long else SHORT_ANSWERS[number % len(SHORT_ANSWERS)])
    return Workload(prompts, answers, LONG + LONG_ANSWER)


@dataclass(frozen=True)
class RungResult:
    """What a rung did."""

    name: str
    change: str
    requests: int
    answer_tokens: int
    seconds: float
    first_token: float  # seconds from the start to a request's first token, the median
    last_first_token: float  # and the longest
    longest_pause: float  # seconds between two tokens of an answer
    steps: int
    pads: int
    rows: int  # of the forward, with pads
    together: float  # sequences in a step, on average
    kv_pool: int  # bytes
    kv_reserved: int  # bytes, on average over steps
    kv_used: int
    settings: Mapping[str, Any] = field(hash=False)

    @property
    def rate(self) -> float:
        """Tokens of answers a second."""
        return self.answer_tokens / self.seconds

    @property
    def waste(self) -> float:
        """Of the rows that were computed, the part that were pads."""
        return self.pads / self.rows

    def as_dict(self) -> dict[str, Any]:
        """Plain data, with what follows from it."""
        return {**asdict(self), "tokens_per_second": self.rate, "padding_waste": self.waste}


def pool_of(context: int) -> int:
    """Positions of the KV pool, the same at every rung that batches."""
    return TOGETHER * -(-context // SUBTILE) * SUBTILE


def climb(
    load: Callable[..., LLM], workload: Workload, rungs: Sequence[Rung], told: Callable[[str], None]
) -> Iterator[RungResult]:
    """Measure the rungs, one after the other. load: an ``LLM`` with these settings.

    Raises RuntimeError if a rung gives other tokens than those before.
    """
    answers: dict[int, list[int]] = {}
    pool = pool_of(workload.context)
    for rung in rungs:
        told(f"{rung.name}: loading")
        with load(max_model_len=workload.context, kv_tokens=pool, **rung.settings) as llm:
            chosen = workload.part(rung.parts)
            told(f"{rung.name}: {len(chosen)} requests")
            outputs, result = _measure(llm, rung, workload, chosen)
        for number, output in zip(chosen, outputs, strict=True):
            ids = output.outputs[0].token_ids
            if answers.setdefault(number, ids) != ids:
                raise RuntimeError(f"request {number} has other tokens at the rung {rung.name!r} than before")
        yield result


def _measure(llm: LLM, rung: Rung, workload: Workload, chosen: Sequence[int]) -> tuple[list[RequestOutput], RungResult]:
    """Run the chosen requests, once something else has warmed the engine up."""
    params = [SamplingParams(temperature=0, max_tokens=workload.answers[number], ignore_eos=True) for number in chosen]
    llm.generate([[1, 2, 3]], SamplingParams(temperature=0, max_tokens=2))  # what is used first is slow
    llm.reset_prefix_cache()
    before, begin = llm.totals(), time.perf_counter()
    outputs = llm.generate([list(workload.prompts[number]) for number in chosen], params, use_tqdm=False)
    seconds, after = time.perf_counter() - begin, llm.totals()
    first = sorted(each.statistics.waiting_seconds + each.statistics.prefill_seconds for each in outputs)
    steps, pads = after.steps - before.steps, after.pads - before.pads
    position = llm.runner.kv.position_bytes
    return outputs, RungResult(
        name=rung.name,
        change=rung.change,
        requests=len(chosen),
        answer_tokens=sum(len(output.outputs[0].token_ids) for output in outputs),
        seconds=seconds,
        first_token=median(first),
        last_first_token=first[-1],
        longest_pause=max(output.statistics.longest_pause for output in outputs),
        steps=steps,
        pads=pads,
        rows=after.tokens - before.tokens + pads,
        together=(after.sequences - before.sequences) / steps,
        kv_pool=llm.settings.kv_tokens * position,
        kv_reserved=(after.kv_reserved - before.kv_reserved) * position // steps,
        kv_used=(after.kv_used - before.kv_used) * position // steps,
        settings=dict(rung.settings),
    )


def check_context(context_length: int) -> None:
    """Refuse a model whose context doesn't hold the long request."""
    if context_length < LONG + LONG_ANSWER:
        raise CapacityError(
            f"the ladder's longest request has {LONG + LONG_ANSWER} tokens; the model's context holds {context_length}."
            " Use another model."
        )
