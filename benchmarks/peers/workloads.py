"""The rows of the table: what is asked for, and the prompts.

In: a round's number. Out: for each workload the prompts, which begin differently in every request, so that no engine
can reuse what it computed for an earlier one.
"""

import json
import random
from collections.abc import Mapping
from pathlib import Path

from cutaway.audit.speed import Workload

FIXTURE = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "prompts.json"

WORKLOADS: Mapping[str, Workload] = {
    "decode": Workload("decode, one sequence, context 128", 1, 128, 64, "after first"),
    "batch": Workload("decode, 16 sequences, context 128", 16, 128, 32, "after first"),
    "prefill": Workload("prefill of 512 tokens", 1, 512, 1, "prompt"),
    "long": Workload("decode, one sequence, context 4,096", 1, 4096, 32, "after first"),
}
MEMORY = "memory"
MEMORY_WORKLOAD = Workload("peak memory", 1, 512, 64, "prompt")  # a long step, then short ones
ROWS = (*WORKLOADS, MEMORY)


def positions_of(work: Workload) -> int:
    """Of all its sequences together."""
    return work.sequences * (work.prompt_tokens + work.new_tokens)


def corpus(vocab_size: int) -> list[int]:
    """The token ids of real texts in SmolLM2's vocabulary; in another one they are arbitrary."""
    return [i % vocab_size for prompt in json.loads(FIXTURE.read_text("utf-8"))["prompts"] for i in prompt["ids"]]


def prompts_of(work: Workload, ids: list[int], request: int) -> list[list[int]]:
    """The prompts of the run's request of this number: the ids, drawn at random, in every run the same."""
    draws = (random.Random(f"{request}/{sequence}") for sequence in range(work.sequences))
    return [draw.choices(ids, k=work.prompt_tokens) for draw in draws]
