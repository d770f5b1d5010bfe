"""A team: the threads that run one step together, seen from inside compiled code.

In: a ``Team`` record, the same for all its members but for the rank and the notes. Out: work, each piece of it given to
exactly one member, by a fixed ``share`` of equal pieces or by ``take``, one item after the other; and ``barrier``,
behind which all members see what all wrote before it. The shared words lie in one block of memory, each on a cache line
of its own: arrivals, generation, sleepers, then for each member a work counter and the time that it slept.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from cutaway.ops.arguments import kept
from cutaway.ops.kernel_cache import inner_jit
from cutaway.ops.simd import atomic_add, atomic_load, atomic_store, cycles, pause, sleep_while, wake

CACHE_LINE: Final = 64
# Byte offsets in the shared block.
ARRIVALS, GENERATION, SLEEPERS, COUNTERS = 0, CACHE_LINE, 2 * CACHE_LINE, 3 * CACHE_LINE
SLEPT: Final = 8  # from a member's counter on: the cycles that it slept in barriers, ever
SPINS: Final = 2000
"""Pauses of a waiting member before it sleeps, some 50 to 100 µs: longer than members of a quiet team wait for each
other, shorter than the slice of time that one waits for whose core went to another program.
"""


@kept
class Team(NamedTuple):
    """One member's view of the team."""

    rank: int  # 0 … size - 1
    size: int
    shared: int  # address of the shared block, aligned to a cache line
    notes: int  # address of this member's own words for its taps (timed and tapped steps), or 0


def slept(shared: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> int:
    """The cycles that all members have slept in barriers since the block was made: time that the team has lost."""
    return int(shared[(COUNTERS + SLEPT) // 8 :: CACHE_LINE // 8].sum())


def shared_block(size: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """The zeroed shared words of a team: int64, starting on a cache line."""
    words = COUNTERS // 8 + size * CACHE_LINE // 8
    raw = np.zeros(words + CACHE_LINE // 8, np.int64)
    skip = -raw.ctypes.data % CACHE_LINE // 8
    return raw[skip : skip + words]


@inner_jit
def barrier(team: Team) -> None:
    """Wait until all members have arrived. The last one resets the work counters for the next operation."""
    if team.size == 1:
        atomic_store(team.shared + COUNTERS, 0)
        return
    generation = atomic_load(team.shared + GENERATION)
    if atomic_add(team.shared + ARRIVALS, 1) == team.size - 1:
        atomic_store(team.shared + ARRIVALS, 0)
        for rank in range(team.size):
            atomic_store(team.shared + COUNTERS + CACHE_LINE * rank, 0)
        # An addition, since a plain store may pass the load behind it: a member that counted itself as a sleeper
        # meanwhile, and still found the old generation, would sleep for ever.
        atomic_add(team.shared + GENERATION, 1)
        if atomic_load(team.shared + SLEEPERS) > 0:
            wake(team.shared + GENERATION)
        return
    for _ in range(SPINS):
        if atomic_load(team.shared + GENERATION) != generation:
            return
        pause()
    # Whoever is late has lost its core, perhaps to a program beside us. An idle core lets the system move either there;
    # a yielding one, which finds nobody else waiting for it, is given back at once.
    begin = cycles()
    while atomic_load(team.shared + GENERATION) == generation:
        atomic_add(team.shared + SLEEPERS, 1)
        sleep_while(team.shared + GENERATION, generation)
        atomic_add(team.shared + SLEEPERS, -1)
    atomic_add(team.shared + COUNTERS + CACHE_LINE * team.rank + SLEPT, cycles() - begin)


@inner_jit
def share(team: Team, count: int) -> Any:
    """This member's part of ``count`` equal pieces of work, a range. Parts are contiguous and the same in every
    operation: a member finds most of what it reads in its own cache, and doesn't write to cache lines that others write
    to. For work so short that waiting for a slow member costs less than ``take``.
    """
    # Rounded up, so that a single piece, the row of a decode step, is rank 0's, whose cache has the row.
    first, end = count * team.rank, count * (team.rank + 1)
    return range((first + team.size - 1) // team.size, (end + team.size - 1) // team.size)


@inner_jit
def take(team: Team, num_items: int) -> int:
    """The next of ``num_items`` work items for this member, or -1 when none is left.

    Each member owns a contiguous share, which it takes first (long streams of memory), then what others have left.
    """
    for distance in range(team.size):
        owner = (team.rank + distance) % team.size
        first, end = num_items * owner // team.size, num_items * (owner + 1) // team.size
        item = first + atomic_add(team.shared + COUNTERS + CACHE_LINE * owner, 1)
        if item < end:
            return item
    return -1
