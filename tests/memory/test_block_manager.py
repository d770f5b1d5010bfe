"""Blocks, block tables and the prefix cache: who holds what, what is shared, what goes first."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.memory.block_manager import NOTHING_CACHED, BlockManager
from cutaway.memory.block_pool import BlockPool
from cutaway.memory.block_table import BlockCopy, BlockTable
from cutaway.memory.hash_chain import Hash, HashChain, blake2b_256
from cutaway.memory.prefix_cache import PrefixCache

LENGTH = 3


def computed(manager: BlockManager, ids: list[int], salt: bytes = b"", digest: Hash = blake2b_256) -> BlockTable:
    """The table of a sequence of these ids, all computed."""
    chain = HashChain(salt, manager.block_length, digest)
    table = manager.open(chain, manager.cached_prefix(chain, ids))
    manager.prepare(table, len(table.entries) * manager.block_length, len(ids))
    manager.seal(table, ids, len(ids))
    return table


def hits(manager: BlockManager, ids: list[int], salt: bytes = b"") -> int:
    """Tokens that a new sequence of these ids finds in the cache."""
    return manager.cached_prefix(HashChain(salt, manager.block_length), ids).num_tokens


@given(st.integers(1, 7), st.lists(st.tuples(st.sampled_from("ahrm"), st.integers(0, 20)), max_size=60))
def test_a_pool_counts_as_a_multiset(num_blocks: int, calls: list[tuple[str, int]]) -> None:
    """Against a plain list of holders, one entry for each reference."""
    pool, holders = BlockPool(num_blocks), list[int]()
    for call, number in calls:
        if call == "a" and pool.num_free:
            block = pool.allocate()
            assert block not in holders
            assert block not in pool.cached()
            holders.append(block)
        elif holders:
            block = holders[number % len(holders)]
            if call == "h":
                pool.hold(block)
                holders.append(block)
            elif call == "m":
                pool.mark_cached(block)
            elif call == "r":
                pool.release(block)
                holders.remove(block)
                assert pool.is_kept(block) == (block not in holders and block in pool.cached())
        pool.check([each] for each in holders)
        assert pool.num_free == num_blocks - len(set(holders))


def test_misuse_of_a_pool_is_an_error() -> None:
    pool = BlockPool(1)
    with pytest.raises(ValueError, match="nobody holds"):
        pool.release(0)
    with pytest.raises(ValueError, match="nobody holds"):
        pool.mark_cached(0)
    pool.allocate()
    with pytest.raises(ValueError, match="all 1 blocks are held"):
        pool.allocate()
    with pytest.raises(ValueError, match="0 blocks"):
        BlockPool(0)
    with pytest.raises(ValueError, match="0 tokens"):
        BlockManager(1, 0)


def test_kept_blocks_are_taken_last_and_oldest_first() -> None:
    pool = BlockPool(4)
    blocks = [pool.allocate() for _ in range(4)]
    for block in (blocks[2], blocks[0], blocks[3]):
        pool.mark_cached(block)
    for block in (blocks[2], blocks[0], blocks[3], blocks[1]):
        pool.release(block)
    pool.hold(blocks[2])  # used again, so the youngest when it is released
    pool.release(blocks[2])
    assert [pool.allocate() for _ in range(4)] == [blocks[1], blocks[0], blocks[3], blocks[2]]


@pytest.mark.parametrize(
    ("held", "message"),
    [([], "other reference counts"), ([[0], [0]], "other reference counts"), ([[0, 0]], "twice")],
)
def test_the_check_finds_wrong_holders(held: list[list[int]], message: str) -> None:
    pool = BlockPool(3)
    assert pool.allocate() == 0
    pool.check([[0]])
    with pytest.raises(RuntimeError, match=message):
        pool.check(held)


@pytest.mark.parametrize("damage", ["lost", "doubled", "free and cached", "kept and not cached"])
def test_the_check_finds_damage(damage: str) -> None:
    pool = BlockPool(3)
    pool.mark_cached(pool.allocate())
    pool.release(0)
    pool.check([])
    if damage == "lost":
        pool._free.pop()
    elif damage == "doubled":
        pool._free.append(pool._free[0])
    elif damage == "free and cached":
        pool._cached.add(pool._free[0])
    else:
        pool._cached.clear()
    with pytest.raises(RuntimeError):
        pool.check([])


@pytest.mark.parametrize("damage", ["entry", "not cached", "parent gone", "order", "lost table"])
def test_the_managers_check_finds_damage(damage: str) -> None:
    manager = BlockManager(6, 1)
    table = computed(manager, [1, 2, 3])
    manager.check()
    if damage == "entry":
        table.blocks[0], table.blocks[1] = table.blocks[1], table.blocks[0]
    elif damage == "not cached":
        manager.cache.forget(table.blocks[2])
    elif damage == "parent gone":
        manager.cache.forget(table.blocks[0])
        manager.pool._cached.discard(table.blocks[0])
    elif damage == "order":
        manager.close(table)
        manager.pool._kept = dict.fromkeys(reversed(manager.pool.kept()))
    else:
        manager._tables.clear()
    with pytest.raises(RuntimeError):
        manager.check()


def test_at_least_the_last_token_is_computed() -> None:
    """A prompt that is whole in the cache, of a whole number of blocks or not: the logits of its end are wanted."""
    manager = BlockManager(9, LENGTH)
    computed(manager, [1, 2, 3, 4, 5, 6, 7])
    for length, cached in enumerate((0, 0, 0, 3, 3, 3, 6), start=1):
        assert hits(manager, [1, 2, 3, 4, 5, 6, 7][:length]) == cached, length
    assert hits(manager, [1, 2, 3, 4, 9, 6, 7]) == 3
    assert hits(manager, [9, 2, 3, 4, 5, 6, 7]) == 0
    assert hits(manager, [1, 2, 3, 4, 5, 6, 7], salt=b"other") == 0


def test_equal_blocks_become_one() -> None:
    """Two sequences that computed the same at the same time share it from then on."""
    manager = BlockManager(9, LENGTH)
    tables = [manager.open(HashChain(b"", LENGTH)) for _ in range(2)]
    ids = [1, 2, 3, 4, 5, 6, 7]
    for table in tables:
        manager.prepare(table, 0, 7)
    assert manager.num_free == 3
    for table in tables:
        manager.seal(table, ids, 7)
        manager.check()
    assert tables[0].blocks[:2] == tables[1].blocks[:2]
    assert tables[0].blocks[2] != tables[1].blocks[2]
    assert manager.num_free == 5


def test_the_end_of_a_prefix_is_evicted_before_its_beginning() -> None:
    manager = BlockManager(4, 1)
    ids = [1, 2, 3, 4]
    manager.close(computed(manager, ids))
    other = manager.open(HashChain(b"", 1))
    for taken in range(1, 5):
        manager.prepare(other, taken - 1, taken)
        manager.check()
        assert hits(manager, [*ids, 5]) == 4 - taken


def test_without_a_prefix_cache_nothing_is_kept() -> None:
    manager = BlockManager(4, 1, prefix_cache=False)
    manager.close(computed(manager, [1, 2, 3]))
    assert manager.pool.num_kept == 0
    assert hits(manager, [1, 2, 3]) == 0


def test_copy_on_write_and_the_last_writes_in_place() -> None:
    manager = BlockManager(9, LENGTH)
    ids = [1, 2, 3, 4]
    first = computed(manager, ids)
    others = [manager.fork(first) for _ in range(2)]
    assert manager.num_free == 7
    shared = first.blocks[1]
    copies = [manager.prepare(table, 4, 5) for table in (first, *others)]
    assert copies == [[BlockCopy(shared, first.blocks[1])], [BlockCopy(shared, others[0].blocks[1])], []]
    assert others[1].blocks[1] == shared
    assert len({table.blocks[1] for table in (first, *others)}) == 3
    assert len({table.blocks[0] for table in (first, *others)}) == 1
    for table in (first, *others):
        manager.check()
        manager.close(table)
    assert manager.num_free == 9


@given(
    st.integers(1, 4), st.integers(1, 6), st.integers(0, 12), st.integers(0, 3), st.integers(1, 30), st.integers(0, 6)
)
def test_room_is_what_can_be_prepared(
    block_length: int, num_blocks: int, begun: int, forks: int, more: int, taken: int
) -> None:
    """``room`` against trial: exactly so many positions can be prepared, and not one more."""

    def tried(count: int) -> bool:
        manager = BlockManager(num_blocks, block_length, prefix_cache=False)
        table = manager.open(HashChain(b"", block_length))
        manager.prepare(table, 0, start)
        for _ in range(forks):
            manager.fork(table)
        other = manager.open(HashChain(b"", block_length))
        manager.prepare(other, 0, min(taken, manager.num_free) * block_length)
        room = manager.room(table, start)
        if count == -1:
            rooms.append(room)
            return True
        try:
            manager.prepare(table, start, start + count)
        except ValueError:
            return False
        manager.check()
        return True

    start, rooms = min(begun, num_blocks * block_length), list[int]()
    tried(-1)
    for count in range(1, more + 1):
        assert tried(count) == (count <= rooms[0]), (count, rooms[0])


def test_a_hash_that_collides_is_no_hit() -> None:
    """With a hash of one or two values, hits are found by their ids or not at all; against all prefixes in use."""
    for values in (1, 2, 3):

        def weak(content: bytes, values: int = values) -> bytes:
            return bytes([sum(content) % values])

        rng = random.Random(values)
        manager = BlockManager(12, 2)
        known: dict[int, tuple[int, ...]] = {}  # block → the ids up to its end that it was computed from
        for _ in range(400):
            ids = [rng.randrange(2) for _ in range(rng.randint(1, 12))]
            chain = HashChain(rng.choice((b"", b"x")), 2, weak)
            prefix = manager.cached_prefix(chain, ids)
            entries = prefix.entries
            for number, entry in enumerate(entries, start=1):
                assert known[entry.block] == (len(chain.salt), *ids[: 2 * number])
            table = manager.open(chain, prefix)
            manager.prepare(table, len(entries) * 2, len(ids))
            for number in range(len(entries), len(table.blocks)):
                known[table.blocks[number]] = (len(chain.salt), *ids[: 2 * number + 2])
            manager.seal(table, ids, len(ids))
            manager.check()
            manager.close(table)
            manager.check()


@pytest.mark.parametrize("seed", range(5))
def test_what_was_known_of_a_prefix_is_brought_up_to_date(seed: int) -> None:
    """At any time the same as a look from the start, and the free blocks beside it as by counting its kept ones."""
    rng = random.Random(seed)
    manager = BlockManager(14, 2)
    asking = [(HashChain(b"", 2), [rng.randrange(2) for _ in range(12)]) for _ in range(4)]
    known = [NOTHING_CACHED] * len(asking)
    opened, seen = list[BlockTable](), Counter[str]()
    for _ in range(600):
        ids = [*rng.choice(asking)[1][: rng.randint(1, 12)], rng.randrange(2)]
        if manager.num_free >= 7 and rng.random() < 0.6:
            table = computed(manager, ids)
            opened.append(table)
            if rng.random() < 0.5:
                manager.keep_tail(table, ids, len(ids))
                manager.close(opened.pop())
        elif opened:
            manager.close(opened.pop(rng.randrange(len(opened))))
        if rng.random() < 0.02:
            manager.reset_prefix_cache()
        manager.check()
        place = rng.randrange(len(asking))
        chain, wanted = asking[place]
        before, known[place] = known[place], manager.cached_prefix(chain, wanted, known[place])
        assert known[place] == manager.cached_prefix(HashChain(b"", 2), wanted)
        change = len(known[place].entries) - len(before.entries)
        seen["grown" if change > 0 else "shrunk" if change < 0 else "same"] += 1
        kept = [entry for entry in known[place].entries if manager.pool.is_kept(entry.block)]
        beside = manager.num_free - len(kept) - (known[place].tail is not None)
        assert manager.num_free_beside(known[place]) == beside
        seen["held in part"] += 0 < len(kept) < len(known[place].entries)
    assert all(seen[each] > 10 for each in ("grown", "shrunk", "same", "held in part")), seen


def test_keys_name_all_that_lies_before() -> None:
    """Equal keys for equal prefixes, of one salt, and for nothing else; computed once, however the ids come."""
    ids = [5, 6, 7, 8, 9, 10, 5, 6, 7]
    whole, parts = HashChain(b"s", LENGTH), HashChain(b"s", LENGTH)
    whole.extend(ids, 3)
    for blocks in (1, 1, 2, 3):
        parts.extend(ids[: 3 * blocks + 1], blocks)
    assert whole.keys == parts.keys
    assert whole.keys[0].ids == whole.keys[2].ids
    assert len({key.digest for key in whole.keys}) == 3
    fork = whole.fork()
    fork.extend([*ids, 1, 2, 3], 4)
    assert len(whole.keys) == 3
    assert fork.keys[:3] == whole.keys
    other = HashChain(b"t", LENGTH)
    other.extend(ids, 3)
    assert not {key.digest for key in other.keys} & {key.digest for key in whole.keys}


def test_the_first_of_one_digest_stays() -> None:
    cache = PrefixCache()
    chain = HashChain(b"", 1, lambda content: b"same")
    chain.extend([1, 2], 2)
    first = cache.add(chain.keys[0], None, b"", 4)
    assert cache.add(chain.keys[1], first, b"", 5) is None
    assert cache.find(chain.keys[0], None, b"") is first
    assert cache.find(chain.keys[1], first, b"") is None
    assert cache.find(chain.keys[0], None, b"salt") is None
    cache.forget(5)
    cache.forget(4)
    assert cache.entries() == []


def ended(manager: BlockManager, ids: list[int], salt: bytes = b"") -> BlockTable:
    """A sequence of these ids has been computed and has ended."""
    table = computed(manager, ids, salt)
    manager.keep_tail(table, ids, len(ids))
    manager.close(table)
    manager.check()
    return table


def test_a_last_block_is_handed_over() -> None:
    """As far as the ids agree, never with the last one, to the first that goes on from it."""
    manager = BlockManager(9, LENGTH)
    ended(manager, [1, 2, 3, 4, 5])
    for ids, want in [
        ([1, 2, 3, 4, 5, 6], 5),
        ([1, 2, 3, 4, 5], 4),
        ([1, 2, 3, 4], 3),
        ([1, 2, 3, 4, 9, 6], 4),
        ([1, 2, 3, 9, 5, 6], 3),
        ([9, 2, 3], 0),
    ]:
        assert hits(manager, ids) == want, ids
    assert hits(manager, [1, 2, 3, 4, 5, 6], salt=b"other") == 0
    chain = HashChain(b"", LENGTH)
    prefix = manager.cached_prefix(chain, [1, 2, 3, 4, 5, 6])
    assert prefix.num_blocks == 2
    assert manager.num_free_beside(prefix) == 7
    table = manager.open(chain, prefix)
    assert manager.num_free == 7
    manager.check()
    assert manager.prepare(table, 5, 6) == []  # it is the table's own
    assert hits(manager, [1, 2, 3, 4, 5, 6]) == 3
    manager.close(table)
    assert manager.num_free == 9


def test_of_two_last_blocks_the_newer_is_kept() -> None:
    manager = BlockManager(9, LENGTH)
    ended(manager, [1, 2, 3, 4, 5])
    ended(manager, [1, 2, 3, 4, 8])
    ended(manager, [1, 2, 3, 7])
    assert hits(manager, [1, 2, 3, 4, 5, 6]) == 4
    assert hits(manager, [1, 2, 3, 4, 8, 6]) == 5
    assert hits(manager, [1, 2, 3, 7, 8]) == 4
    assert len(manager.pool.cached()) == 3


def test_a_last_block_that_another_holds_is_not_kept() -> None:
    manager = BlockManager(9, LENGTH)
    ids = [1, 2, 3, 4, 5]
    table = computed(manager, ids)
    other = manager.fork(table)
    manager.keep_tail(table, ids, 5)
    manager.close(table)
    manager.check()
    assert hits(manager, [*ids, 6]) == 3
    manager.keep_tail(other, ids, 5)
    manager.close(other)
    assert hits(manager, [*ids, 6]) == 5


def test_last_blocks_go_before_those_that_they_follow() -> None:
    manager = BlockManager(4, LENGTH)
    ended(manager, [1, 2, 3, 4, 5, 6, 7])
    for free, want in ((1, 7), (2, 6), (3, 3), (4, 0)):
        table = manager.open(HashChain(b"x", LENGTH))
        manager.prepare(table, 0, free * LENGTH)
        manager.check()
        assert hits(manager, [1, 2, 3, 4, 5, 6, 7, 8]) == want
        manager.close(table)


def test_forgetting_all_that_nobody_holds() -> None:
    manager = BlockManager(9, LENGTH)
    table = computed(manager, [1, 2, 3, 4, 5, 6])
    ended(manager, [1, 2, 3, 4, 5, 6, 7])
    ended(manager, [8, 8, 8, 8])
    manager.reset_prefix_cache()
    manager.check()
    assert manager.pool.num_kept == 0
    assert hits(manager, [1, 2, 3, 4, 5, 6, 7, 8]) == 6
    assert hits(manager, [8, 8, 8, 8, 8]) == 0
    manager.close(table)
    assert manager.num_free == 9
