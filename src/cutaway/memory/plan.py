"""The memory plan: what an engine will take, part by part, before anything is loaded.

In: bytes of the runtime, of the weights, of a position, of the workspace; how many positions. Out: totals; what fits
into a limit, and what to change where something doesn't.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from cutaway.errors import CapacityError


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes, resident from the engine's start on."""

    runtime: int  # Python, compiled kernels, the tokenizer; no compiler, since kernels come from the cache
    weights: int  # as they are loaded
    workspace: int  # the buffers of a step, the sampler's
    position: int  # keys and values of one position in all layers
    page_length: int  # positions; the pool has whole pages
    pages: int

    @property
    def kv(self) -> int:
        """The KV pool."""
        return self.pages * self.page_length * self.position

    @property
    def fixed(self) -> int:
        """All but the KV pool."""
        return self.runtime + self.weights + self.workspace

    @property
    def total(self) -> int:
        """All of it."""
        return self.fixed + self.kv

    @property
    def tokens(self) -> int:
        """Positions in the pool."""
        return self.pages * self.page_length

    def pages_within(self, limit: int) -> int:
        """Pages that the pool can have in a process of ``limit`` bytes; 0 if none."""
        return max(limit - self.fixed, 0) // (self.page_length * self.position)

    def within(self, limit: int, context: int, sequences: int, spare: int = 0) -> "MemoryPlan":
        """The same with as many pages as the limit leaves room for, and at most what all sequences can use. spare:
        pages besides, which no sequence has.

        Raises CapacityError where one sequence of ``context`` positions doesn't fit.
        """
        each = -(-context // self.page_length)
        pages = self.pages_within(limit) - spare
        if pages < each:
            needed = self.fixed + (each + spare) * self.page_length * self.position
            raise CapacityError(
                f"the memory limit is {limit:,} bytes; runtime {self.runtime:,}, weights {self.weights:,}, workspace "
                f"{self.workspace:,} and one context of {context} positions × {self.position:,} bytes"
                f"{' with a page for pads' * (spare > 0)} take {needed:,}. " + self._remedy(pages)
            )
        return replace(self, pages=min(pages, each * sequences))

    def _remedy(self, pages: int) -> str:
        tokens = pages * self.page_length
        if tokens <= 0:
            return "Give it more memory, or use a smaller model or a smaller step."
        return f"Lower the context (max_model_len) to {tokens} or less, or give it more memory."

    def as_dict(self) -> dict[str, Any]:
        """Plain data, with totals."""
        return {**asdict(self), "kv": self.kv, "total": self.total, "tokens": self.tokens}
