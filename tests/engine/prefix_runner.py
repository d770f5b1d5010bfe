"""A runner without a model: its logits are random numbers that depend on every token before them.

It keeps tokens by page and place, as the KV pool does, so that a wrong, missing or overwritten context gives other
logits.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cutaway.engine.steps import Look
from cutaway.ops.cpu.arrays import Batch, Floats


class PrefixRunner:
    """``Steps`` over ``logits_after``. ``damaged`` is a prefix after which a logit is NaN."""

    def __init__(
        self,
        context: int = 40,
        max_step_tokens: int = 64,
        vocab_size: int = 50,
        max_step_outputs: int = 1,
        page_length: int = 4,
    ) -> None:
        self.context, self.max_step_tokens, self.vocab_size = context, max_step_tokens, vocab_size
        self.max_step_outputs, self.page_length = max_step_outputs, page_length
        self.num_steps = self.open_steps = 0
        self.damaged: tuple[int, ...] | None = None
        self.pages: dict[int, dict[int, int]] = {}
        self.batches: list[int] = []
        self.copies: list[tuple[int, int]] = []

    def logits_after(self, prefix: Sequence[int]) -> Floats:
        """The logits [V] of the token that follows."""
        logits = np.random.default_rng(list(prefix)).standard_normal(self.vocab_size).astype(np.float32)
        if self.damaged == tuple(prefix):
            logits[3] = np.nan
        return logits

    def copy_page(self, source: int, target: int) -> None:
        """Copy what a page has."""
        self.copies.append((source, target))
        self.pages[target] = dict(self.pages.get(source, {}))

    def step(self, batch: Batch) -> Floats:
        """The logits of the batch's output rows."""
        assert len(batch.tokens) <= self.max_step_tokens
        assert len(batch.output_rows) <= self.max_step_outputs
        assert int(batch.positions.max()) < self.context
        self.batches.append(len(batch.tokens))
        self.num_steps += 1
        rows = zip(batch.tokens.tolist(), batch.positions.tolist(), batch.sequences.tolist(), strict=True)
        for token, position, sequence in rows:
            page = int(batch.block_tables[sequence, position // self.page_length])
            assert page >= 0
            self.pages.setdefault(page, {})[position % self.page_length] = token
        prefixes = [self._prefix(batch, row) for row in batch.output_rows.tolist()]
        return np.array([self.logits_after(each) for each in prefixes]).reshape(-1, self.vocab_size)

    def step_tapped(self, batch: Batch, looks: Sequence[Look]) -> Floats:
        """The same; what can be seen are the tokens, and the logits."""
        self._show(looks, "embed", batch.tokens)
        logits = self.step(batch)
        self.open_steps += 1
        self._show(looks, "logits", logits)
        return logits

    @staticmethod
    def _show(looks: Sequence[Look], name: str, array: Any) -> None:
        for look in looks:
            if (name, -1) in look.wanted:
                look.see(name, -1, array)

    def hidden_states(self, batch: Batch) -> Floats:
        """The hidden states of the batch's rows, 5 numbers each."""
        return np.array([self.hidden_after(self._prefix(batch, row)) for row in range(len(batch.tokens))])

    def hidden_after(self, prefix: Sequence[int]) -> Floats:
        """The hidden state [5] of the last of these tokens; its length is never 1."""
        return np.random.default_rng([*prefix, 1]).standard_normal(5).astype(np.float32) + np.float32(2)

    def _prefix(self, batch: Batch, row: int) -> list[int]:
        """What the row's sequence has in its pages, up to the row."""
        table = batch.block_tables[int(batch.sequences[row])].tolist()
        length = self.page_length
        return [self.pages[table[p // length]][p % length] for p in range(int(batch.positions[row]) + 1)]
