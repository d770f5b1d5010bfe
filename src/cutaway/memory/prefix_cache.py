"""The prefix cache: which blocks hold the keys and values of which ids.

In: a key of a hash chain. Out: the block that holds its content, if one does. Keys and values of a position depend on
nothing but the ids up to it, so a block computed by one sequence serves every other that begins with the same ids.
"""

from dataclasses import dataclass

from cutaway.memory.hash_chain import BlockKey


@dataclass(frozen=True, eq=False)
class CachedBlock:
    """A full block whose content is known: the ids of ``key``, after those of ``parent`` and before it."""

    block: int
    key: BlockKey
    parent: "CachedBlock | None"  # None: the block is the first of its sequence
    salt: bytes


class PrefixCache:
    """The cached blocks, by the digest of their key.

    A digest only finds a candidate. It is a hit if it has the same ids, the same parent and the same salt, all compared
    themselves; so a hit is right even where two digests are equal.
    """

    def __init__(self) -> None:
        self._by_digest: dict[bytes, CachedBlock] = {}
        self._by_block: dict[int, CachedBlock] = {}

    def find(self, key: BlockKey, parent: CachedBlock | None, salt: bytes) -> CachedBlock | None:
        """The cached block with this content, or None."""
        entry = self._by_digest.get(key.digest)
        if entry is None or entry.key.ids != key.ids or entry.parent is not parent or entry.salt != salt:
            return None
        return entry

    def holds(self, entry: CachedBlock) -> bool:
        """Whether this is cached still."""
        return self._by_block.get(entry.block) is entry

    def add(self, key: BlockKey, parent: CachedBlock | None, salt: bytes, block: int) -> CachedBlock | None:
        """Remember what ``block`` holds; None, and nothing remembered, if other content has the same digest."""
        if key.digest in self._by_digest:
            return None
        entry = CachedBlock(block, key, parent, salt)
        self._by_digest[key.digest] = self._by_block[block] = entry
        return entry

    def forget(self, block: int) -> None:
        """The block's content will be overwritten. Nothing happens if it isn't cached."""
        entry = self._by_block.pop(block, None)
        if entry is not None:
            del self._by_digest[entry.key.digest]

    def entries(self) -> list[CachedBlock]:
        """All cached blocks."""
        return list(self._by_block.values())
