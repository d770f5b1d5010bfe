"""A runner without a model: its logits are random numbers that depend on every token before them.

It keeps tokens by position, as a KV cache does, so that a wrong or missing context gives other logits.
"""

from collections.abc import Sequence

import numpy as np

from cutaway.ops.cpu.arrays import Batch, Floats


class PrefixRunner:
    """``Steps`` over ``logits_after``; ``damaged`` is a position after which a logit is NaN."""

    def __init__(
        self, context: int = 40, max_step_tokens: int = 64, vocab_size: int = 50, max_step_outputs: int = 1
    ) -> None:
        self.context, self.max_step_tokens, self.vocab_size = context, max_step_tokens, vocab_size
        self.max_step_outputs = max_step_outputs
        self.damaged: int | None = None
        self.memory: dict[int, int] = {}
        self.batches: list[int] = []

    def logits_after(self, prefix: Sequence[int]) -> Floats:
        """The logits [V] of the token that follows."""
        logits = np.random.default_rng(list(prefix)).standard_normal(self.vocab_size).astype(np.float32)
        if self.damaged == len(prefix) - 1:
            logits[3] = np.nan
        return logits

    def step(self, batch: Batch) -> Floats:
        assert len(batch.tokens) <= self.max_step_tokens
        assert len(batch.output_rows) <= self.max_step_outputs
        self.batches.append(len(batch.tokens))
        self.memory |= dict(zip(batch.positions.tolist(), batch.tokens.tolist(), strict=True))
        ends = [int(batch.positions[row]) for row in batch.output_rows]
        assert max(ends) < self.context
        return np.array([self.logits_after([self.memory[i] for i in range(end + 1)]) for end in ends])
