"""The block table of a sequence: in which blocks its positions lie, in order.

Position p lies in ``blocks[p // block_length]``. The first ``len(entries)`` blocks are full and cached: other
sequences may hold them too, and nobody writes to them any more.

In: blocks, as the block manager gives them. Out: the block of each position, which attention reads.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from cutaway.memory.hash_chain import HashChain
from cutaway.memory.prefix_cache import CachedBlock


class BlockCopy(NamedTuple):
    """The content of block ``source`` is to be copied to block ``target`` before the next step is computed."""

    source: int
    target: int


@dataclass(eq=False)
class BlockTable:
    """The blocks of one sequence.

    Invariant: ``entries[i].block == blocks[i]``, and each entry's parent is the one before.
    """

    chain: HashChain
    blocks: list[int] = field(default_factory=list)
    entries: list[CachedBlock] = field(default_factory=list)
