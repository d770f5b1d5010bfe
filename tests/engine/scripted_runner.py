"""A runner without a model whose greedy answer is a given list of ids, and streams over it with a real tokenizer."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cutaway.engine.stream import EngineParts, Stream
from cutaway.engine.turns import Turns
from cutaway.memory.kv_setting import kv_setting
from cutaway.memory.sequence_cache import SequenceCache
from cutaway.ops.cpu.arrays import Batch, Floats
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.tokenizer import Tokenizer

PROMPT = (504, 1234)


class ScriptedRunner:
    """``Steps`` whose logits at a position are 0, and 9 for the script's id there; behind it, for its last id."""

    def __init__(self, script: Sequence[int], vocab_size: int, num_prompt: int, context: int = 4096) -> None:
        self.context, self.max_step_tokens, self.max_step_outputs, self.vocab_size = context, 64, 4, vocab_size
        self._script, self._first = list(script), num_prompt - 1

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
    scratch = SamplerScratch.allocate(tokenizer.vocab_size)
    parts = EngineParts(runner, SequenceCache(kv_setting("paged"), context), 1, scratch)
    usable: Callable[[], EngineParts] = lambda: parts  # noqa: E731
    asked = SamplingParams(**{"temperature": 0, "max_tokens": len(script), **params})
    return Stream(usable, Turns(), tokenizer, "0", None, list(prompt), asked)
