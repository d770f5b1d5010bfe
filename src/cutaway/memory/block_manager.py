"""The block manager: block tables of sequences over one pool and one prefix cache.

In: the events of a sequence's life: open, prepare to write, computed, fork, close. Out: its block table, and the block
copies that must be made before it is written to. Integers only; the engine copies and computes.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

from cutaway.memory.block_pool import BlockPool
from cutaway.memory.block_table import BlockCopy, BlockTable
from cutaway.memory.hash_chain import HashChain
from cutaway.memory.prefix_cache import CachedBlock, PrefixCache
from cutaway.memory.tail_cache import Tail, TailCache


class CachedPrefix(NamedTuple):
    """With what a sequence can begin."""

    entries: tuple[CachedBlock, ...]  # full blocks, to be shared
    tail: Tail | None  # the block behind them, to be taken over
    num_tokens: int  # of the sequence, that are computed there

    @property
    def num_blocks(self) -> int:
        """Blocks that the sequence need not allocate."""
        return len(self.entries) + (self.tail is not None)


NOTHING_CACHED: Final = CachedPrefix((), None, 0)


class BlockManager:
    """Who owns which block, and until when.

        open … close     a table holds each of its blocks: one reference for each table that names it
        prepare … seal   blocks of the positions to be computed are held by this table alone: it may write to them
        seal …           a full block is cached: shared by all who begin with the same ids, written by nobody
        close …          blocks that nobody holds are free; cached ones keep their content until they are allocated
        keep_tail …      a last block, partly filled, is kept like a cached one, for one sequence to take over

    Two rules make the cache a tree whose leaves go first. A full block that is cached already replaces the sequence's
    own copy of it, so whoever holds a cached block holds its parent's too. And a table releases its last block first,
    so of the kept blocks a child is always taken before its parent.
    """

    def __init__(self, num_blocks: int, block_length: int, *, prefix_cache: bool = True) -> None:
        """block_length: tokens of a block. prefix_cache: whether full blocks are cached."""
        if block_length < 1:
            raise ValueError(f"blocks of {block_length} tokens; they need 1 at least")
        self.pool = BlockPool(num_blocks)
        self.cache = PrefixCache()
        self.tails = TailCache()
        self.block_length = block_length
        self.prefix_cache = prefix_cache
        self._tables: dict[int, BlockTable] = {}  # the open ones, by identity

    @property
    def num_blocks(self) -> int:
        """Blocks of the pool."""
        return self.pool.num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that can be had, with those that are kept only for their cached content."""
        return self.pool.num_free

    def blocks_for(self, length: int) -> int:
        """Blocks that hold ``length`` positions."""
        return -(-length // self.block_length)

    def cached_prefix(self, chain: HashChain, ids: Sequence[int], known: CachedPrefix = NOTHING_CACHED) -> CachedPrefix:
        """The cached blocks with which a sequence of these ids can begin.

        They never give the last id: it is always computed, since its logits are wanted and are not kept. known: what
        was found for this sequence before. Only what has changed since is looked at: a cached block is forgotten before
        those that it follows, so if the last one is there still, all of them are.
        """
        if not self.prefix_cache:
            return NOTHING_CACHED
        most = len(ids) - 1
        limit = most // self.block_length
        chain.extend(ids, limit)
        entries, alive = known.entries, len(known.entries)
        while alive and not self.cache.holds(entries[alive - 1]):
            alive -= 1
        last, more = entries[alive - 1] if alive else None, list[CachedBlock]()
        while alive + len(more) < limit:
            entry = self.cache.find(chain.keys[alive + len(more)], last, chain.salt)
            if entry is None:
                break
            more.append(last := entry)
        if more or alive < len(entries):
            entries = (*entries[:alive], *more)
        full = len(entries) * self.block_length
        rest = ids[full : min(full + self.block_length, most)]
        tail = self.tails.find(last, chain.salt, rest[0]) if rest else None
        shared = tail.shared(rest) if tail is not None else 0
        return CachedPrefix(entries, tail, full + shared)

    def num_free_beside(self, prefix: CachedPrefix) -> int:
        """Blocks that can still be had once a table that begins so is open."""
        # Whoever holds a cached block holds those before it: the kept ones are the last.
        held = bisect_left(prefix.entries, True, key=lambda entry: self.pool.is_kept(entry.block))
        return self.pool.num_free - (len(prefix.entries) - held) - (prefix.tail is not None)

    def open(self, chain: HashChain, prefix: CachedPrefix = NOTHING_CACHED) -> BlockTable:
        """The table of a sequence that begins with these cached blocks."""
        blocks = [entry.block for entry in prefix.entries]
        if prefix.tail is not None:
            blocks.append(prefix.tail.block)
        for block in blocks:
            self.pool.hold(block)
        if prefix.tail is not None:  # it will be written to
            self.pool.forget(prefix.tail.block)
            self.tails.forget(prefix.tail.block)
        table = BlockTable(chain, blocks, list(prefix.entries))
        self._tables[id(table)] = table
        return table

    def room(self, table: BlockTable, start: int) -> int:
        """How many positions from ``start`` on could be written with the free blocks that there are."""
        available = len(table.blocks) + self.num_free
        if self._must_copy(table, start):
            available -= 1
        return max(available * self.block_length - start, 0)

    def prepare(self, table: BlockTable, start: int, end: int) -> list[BlockCopy]:
        """Make positions ``start`` … ``end - 1`` the table's own, for writing; ``room`` says how many can be.

        Copy on write: a block that others hold too is replaced by a copy. The copies are to be made in their order.
        """
        copies = []
        if self._must_copy(table, start):
            number = start // self.block_length
            target, source = self._allocate(), table.blocks[number]
            copies.append(BlockCopy(source, target))
            table.blocks[number] = target
            self.pool.release(source)
        while len(table.blocks) < self.blocks_for(end):
            table.blocks.append(self._allocate())
        return copies

    def fork(self, table: BlockTable) -> BlockTable:
        """A table of another sequence that has the same positions; both go on by copy on write."""
        for block in table.blocks:
            self.pool.hold(block)
        other = BlockTable(table.chain.fork(), list(table.blocks), list(table.entries))
        self._tables[id(other)] = other
        return other

    def seal(self, table: BlockTable, ids: Sequence[int], length: int) -> None:
        """Positions 0 … ``length - 1`` are computed, from ``ids``: cache the blocks that have become full."""
        if not self.prefix_cache:
            return
        full = length // self.block_length
        table.chain.extend(ids, full)
        for number in range(len(table.entries), full):
            key, own = table.chain.keys[number], table.blocks[number]
            parent = table.entries[-1] if table.entries else None
            entry = self.cache.find(key, parent, table.chain.salt)
            if entry is not None:
                # Another sequence has computed the same: equal ids are equal bits, so one copy is enough.
                self.pool.hold(entry.block)
                self.pool.release(own)
                table.blocks[number] = entry.block
            else:
                entry = self.cache.add(key, parent, table.chain.salt, own)
                if entry is None:
                    return
                self.pool.mark_cached(own)
            table.entries.append(entry)

    def keep_tail(self, table: BlockTable, ids: Sequence[int], length: int) -> None:
        """The sequence ends, with positions 0 … ``length - 1`` computed: what is in its last block stays known.

        Only if no other table holds that block, and all blocks before it are cached. To be called before ``close``.
        """
        number, count = divmod(length, self.block_length)
        if not self.prefix_cache or count == 0 or number != len(table.entries):
            return
        block = table.blocks[number]
        if self.pool.references[block] > 1:
            return
        parent = table.entries[-1] if table.entries else None
        tail = Tail(block, tuple(ids[length - count : length]), parent, table.chain.salt)
        older = self.tails.find(*tail.place)
        if older is not None:
            self.tails.forget(older.block)
            self.pool.forget(older.block)
        self.tails.add(tail)
        self.pool.mark_cached(block)

    def close(self, table: BlockTable) -> None:
        """The sequence has ended, or is to be computed again later: its blocks have a holder less."""
        del self._tables[id(table)]
        for block in reversed(table.blocks):
            self.pool.release(block)
        table.blocks, table.entries = [], []

    def reset_prefix_cache(self) -> None:
        """Forget the cached blocks that nobody holds."""
        for block in self.pool.kept():
            self._forget(block)
            self.pool.forget(block)

    def check(self) -> None:
        """Raise RuntimeError if a block has been lost or belongs to the wrong ones. For tests and the idle engine."""
        tables = list(self._tables.values())
        self.pool.check(table.blocks for table in tables)
        for table in tables:
            parents = [None, *table.entries]
            for block, entry, parent in zip(table.blocks, table.entries, parents, strict=False):
                if entry.block != block or entry.parent is not parent or len(table.entries) > len(table.blocks):
                    raise RuntimeError(f"a table's cached blocks are not its first: {table.blocks}")
        entries, tails = self.cache.entries(), self.tails.tails()
        if sorted([*(each.block for each in entries), *(each.block for each in tails)]) != sorted(self.pool.cached()):
            raise RuntimeError("the pool and the prefix cache differ in what is cached")
        alive, age = set(map(id, entries)), {block: age for age, block in enumerate(self.pool.kept())}
        if any(not self.pool.is_kept(tail.block) for tail in tails):
            raise RuntimeError("a tail is held")
        known: list[CachedBlock | Tail] = [*entries, *tails]
        for cached in known:
            block, parent = cached.block, cached.parent
            if parent is None:
                continue
            if id(parent) not in alive or self.pool.references[parent.block] < self.pool.references[block]:
                raise RuntimeError(f"block {block} is cached, and the one before it is not held as often")
            if parent.block in age and age[block] > age[parent.block]:
                raise RuntimeError(f"block {parent.block} would be taken before the one behind it, {block}")

    def _must_copy(self, table: BlockTable, start: int) -> bool:
        """Whether the block of position ``start`` is there, begun, and held by others too."""
        number = start // self.block_length
        return number < len(table.blocks) and self.pool.references[table.blocks[number]] > 1

    def _allocate(self) -> int:
        block = self.pool.allocate()
        self._forget(block)
        return block

    def _forget(self, block: int) -> None:
        self.cache.forget(block)
        self.tails.forget(block)
