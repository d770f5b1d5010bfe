"""What the KV pool holds of a sequence: the ids whose keys and values are there, and the pages in which they lie.

In: the ids of a sequence. Out: how many of them, from the first on, need not be computed again; pages for the others.
It holds no tensors: integers only. Keys and values of a position depend on nothing but the ids up to it, so a prefix
of equal ids is a prefix of equal bits, whoever computed it.
"""

import numpy as np

from cutaway.memory.kv_setting import KVSetting
from cutaway.ops.cpu.arrays import Ints


class SequenceCache:
    """The cached tokens of the one sequence that has the pool.

    Invariant, also when a step fails or is interrupted: keys and values of positions 0 … num_cached_tokens - 1 are
    those of ``ids``. So positions are forgotten before they are written, and counted after.
    """

    def __init__(self, setting: KVSetting, context: int) -> None:
        """context: positions of a sequence at most."""
        self.setting = setting
        self.page_length = setting.page_length(context)
        self._ids = np.zeros(context, np.int32)
        self._table = np.arange(-(-context // self.page_length), dtype=np.int32)
        self.num_cached_tokens = 0
        self.num_reused_tokens = 0  # by the last ``reuse``
        self.num_pages = 0

    def reuse(self, ids: Ints) -> int:
        """How many of ``ids`` [N] need no computation; the cache forgets everything behind them.

        At most N - 1: the last token is always computed, since its logits are wanted and were not kept.
        """
        length = min(self.num_cached_tokens, len(ids) - 1)
        differs = self._ids[:length] != ids[:length]
        self.num_cached_tokens = self.num_reused_tokens = int(differs.argmax()) if differs.any() else length
        return self.num_reused_tokens

    def reserve(self, length: int) -> Ints:
        """The block table of a sequence of ``length`` positions; whole pages are taken and given back."""
        self.num_pages = -(-length // self.page_length)
        return self._table[: self.num_pages]

    def append(self, ids: Ints) -> None:
        """A step has computed the next positions, with these ids."""
        end = self.num_cached_tokens + len(ids)
        self._ids[self.num_cached_tokens : end] = ids
        self.num_cached_tokens = end

    def end_step(self) -> None:
        """The logits of the last position are there; drop what the setting does not keep."""
        if not self.setting.keeps:
            self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.num_cached_tokens, self.num_pages = 0, 0

    @property
    def num_reserved_tokens(self) -> int:
        """Positions that the pages in use have room for."""
        return self.num_pages * self.page_length
