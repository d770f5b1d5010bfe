"""The tail cache: the last, partly filled blocks of sequences that have ended.

In: the ids behind a sequence's full blocks. Out: the block that holds the beginning of such ids. A tail is not shared
but handed over, since whoever goes on from it writes into it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cutaway.memory.prefix_cache import CachedBlock

Place: TypeAlias = tuple[CachedBlock | None, bytes, int]


@dataclass(frozen=True, eq=False)
class Tail:
    """A block that nobody holds; its first positions have the keys and values of ``ids``, behind ``parent``'s."""

    block: int
    ids: tuple[int, ...]
    parent: CachedBlock | None  # None: the sequence has no full block
    salt: bytes

    @property
    def place(self) -> Place:
        """What finds it."""
        return self.parent, self.salt, self.ids[0]

    def shared(self, ids: Sequence[int]) -> int:
        """How many ids from the first on are those of ``ids``."""
        count = 0
        for own, other in zip(self.ids, ids, strict=False):
            if own != other:
                break
            count += 1
        return count


class TailCache:
    """One tail for each full block before it and each first id: the newest."""

    def __init__(self) -> None:
        self._by_place: dict[Place, Tail] = {}
        self._by_block: dict[int, Tail] = {}

    def find(self, parent: CachedBlock | None, salt: bytes, first_id: int) -> Tail | None:
        """The tail behind these full blocks that begins with this id, or None."""
        return self._by_place.get((parent, salt, first_id))

    def add(self, tail: Tail) -> None:
        """Remember it. There is none in its place."""
        self._by_place[tail.place] = self._by_block[tail.block] = tail

    def forget(self, block: int) -> None:
        """The block's content will be overwritten. Nothing happens if it is no tail."""
        tail = self._by_block.pop(block, None)
        if tail is not None:
            del self._by_place[tail.place]

    def tails(self) -> list[Tail]:
        """All tails."""
        return list(self._by_block.values())
