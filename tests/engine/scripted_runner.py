"""A runner without a model whose greedy answer is a given list of ids, and streams over it with a real tokenizer."""

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np

from cutaway.engine.choice import Asked
from cutaway.engine.core import EngineCore
from cutaway.engine.engine_thread import EngineThread
from cutaway.engine.generation import Arrival, Generation
from cutaway.engine.received import Received
from cutaway.engine.stream import Stream
from cutaway.memory.block_manager import BlockManager
from cutaway.ops.cpu.arrays import Batch, Floats
from cutaway.sampling.forbidden import bad_word_ids, stop_ids
from cutaway.sampling.params import SamplingParams
from cutaway.scheduler.continuous import ContinuousPolicy
from cutaway.scheduler.limits import SchedulerLimits
from cutaway.scheduler.scheduler import Scheduler
from cutaway.tokenizer import Tokenizer

PROMPT = (504, 1234)


class ScriptedRunner:
    """``Steps`` whose logits at a position are 0, and 9 for the script's id there; behind it, for its last id."""

    def __init__(self, script: Sequence[int], vocab_size: int, num_prompt: int, context: int = 4096) -> None:
        self.context, self.max_step_tokens, self.max_step_outputs, self.vocab_size = context, 64, 4, vocab_size
        self.num_steps = 0
        self._script, self._first = list(script), num_prompt - 1

    def copy_page(self, source: int, target: int) -> None:
        """Nothing is kept in pages."""

    def step(self, batch: Batch) -> Floats:
        logits = np.zeros((len(batch.output_rows), self.vocab_size), np.float32)
        for row, token in enumerate(batch.output_rows):
            place = int(batch.positions[token]) - self._first
            logits[row, self._script[min(max(place, 0), len(self._script) - 1)]] = 9
        return logits


def scripted_stream(
    tokenizer: Tokenizer, script: Sequence[int], prompt: Sequence[int] = PROMPT, context: int = 4096, **params: Any
) -> Stream:
    """A stream whose greedy answer is the script; ``max_tokens`` is the script's length unless given."""
    runner = ScriptedRunner(script, tokenizer.vocab_size, len(prompt), context)
    scheduler = Scheduler(BlockManager(2 * context // 16, 16), SchedulerLimits(64, 4), ContinuousPolicy())
    engine = EngineThread(EngineCore(runner, scheduler), "closed")
    usable: Callable[[], EngineThread] = lambda: engine  # noqa: E731
    asked = SamplingParams(**{"temperature": 0, "max_tokens": len(script), **params})
    left = context - len(prompt)
    arrivals: SimpleQueue[Arrival] = SimpleQueue()
    generation = Generation(
        "0",
        Asked(
            prompt_ids=list(prompt),
            params=asked,
            seed=asked.seed or 0,
            max_new_tokens=left if asked.max_tokens is None else min(left, asked.max_tokens),
            stop_ids=stop_ids(asked, tokenizer.eos_ids),
            bad_words=bad_word_ids(asked.bad_words, lambda text: tokenizer.encode(text, add_bos=False)),
        ),
        tokenizer,
        arrivals.put,
    )
    return Stream(usable, Received(generation, None, tokenizer, 1), arrivals)
