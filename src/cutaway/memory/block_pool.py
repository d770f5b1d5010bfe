"""The block pool: how many hold each block, and which blocks are free.

A block is one page of the KV pool, named by its number; the pool holds no tensors. In: allocate, one more holder, one
holder less. Out: block numbers. A free block whose content is cached stays usable until its memory is needed.
"""

from collections.abc import Iterable


class BlockPool:
    """Reference counts of ``num_blocks`` blocks.

    Invariant, between any two calls: each block is in exactly one of three places.

        held    1 or more references                   in neither list
        kept    no reference, its content is cached    in ``_kept``, least recently released first
        free    no reference, its content is nothing   in ``_free``

    ``_cached`` are the blocks whose content is cached, held or kept.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"a pool of {num_blocks} blocks; it needs 1 at least")
        self.num_blocks = num_blocks
        self.references = [0] * num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._kept: dict[int, None] = {}
        self._cached: set[int] = set()

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated: free ones and kept ones."""
        return len(self._free) + len(self._kept)

    @property
    def num_shared(self) -> int:
        """Blocks that somebody holds and whose content is cached: who begins with the same ids may hold them too."""
        return len(self._cached) - len(self._kept)

    @property
    def num_kept(self) -> int:
        """Blocks that nobody holds and whose content is cached."""
        return len(self._kept)

    def allocate(self) -> int:
        """A block with one holder: a free one, else the kept one that was released longest ago.

        Its content is no longer cached: the caller makes the prefix cache forget it.
        """
        if self._free:
            block = self._free.pop()
        elif self._kept:
            block = next(iter(self._kept))
            del self._kept[block]
            self._cached.remove(block)
        else:
            raise ValueError(f"all {self.num_blocks} blocks are held; look at num_free before allocating")
        self.references[block] = 1
        return block

    def hold(self, block: int) -> None:
        """One more holder of a block that is held or kept."""
        if self.references[block] == 0:
            del self._kept[block]
        self.references[block] += 1

    def release(self, block: int) -> None:
        """One holder less; without any, the block is kept if its content is cached, else free."""
        if self.references[block] < 1:
            raise ValueError(f"block {block} is released, and nobody holds it")
        self.references[block] -= 1
        if self.references[block] == 0:
            if block in self._cached:
                self._kept[block] = None
            else:
                self._free.append(block)

    def mark_cached(self, block: int) -> None:
        """The content of a held block is cached from now on; whoever holds it no longer writes to it."""
        if self.references[block] < 1:
            raise ValueError(f"block {block} is to be cached, and nobody holds it")
        self._cached.add(block)

    def forget(self, block: int) -> None:
        """The content of a block is cached no longer; a kept one is free from now on."""
        self._cached.remove(block)
        if self.references[block] == 0:
            del self._kept[block]
            self._free.append(block)

    def is_kept(self, block: int) -> bool:
        """Whether nobody holds the block, and its content is cached."""
        return block in self._kept

    def kept(self) -> list[int]:
        """The kept blocks, in the order in which they will be taken."""
        return list(self._kept)

    def cached(self) -> set[int]:
        """The blocks whose content is cached."""
        return set(self._cached)

    def check(self, holders: Iterable[Iterable[int]]) -> None:
        """Raise RuntimeError unless the invariant holds, for these ``holders``, each with its blocks."""
        counts = [0] * self.num_blocks
        for blocks in holders:
            mine = list(blocks)
            if len(set(mine)) != len(mine):
                raise RuntimeError(f"a holder has a block twice: {mine}")
            for block in mine:
                counts[block] += 1
        if counts != self.references:
            wrong = [block for block in range(self.num_blocks) if counts[block] != self.references[block]]
            raise RuntimeError(f"blocks {wrong[:10]} have other reference counts than holders")
        idle = sorted(self._free) + sorted(self._kept)
        if sorted(idle) != [block for block in range(self.num_blocks) if counts[block] == 0]:
            raise RuntimeError("the free and the kept blocks are not those that nobody holds, each once")
        if any(block in self._cached for block in self._free) or not self._cached.issuperset(self._kept):
            raise RuntimeError("a free block is cached, or a kept one is not")
