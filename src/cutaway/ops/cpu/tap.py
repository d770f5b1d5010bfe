"""The tap: where the forward shows what it has just computed.

In: the operation's name, its layer (-1 outside the layers) and the array it wrote. Out: nothing. In the closed run a
tap does nothing and costs nothing; the open run puts a Python function in its place; the timed run puts ``clock_tap``
there, which appends the time-stamp counter to the member's notes; the tapped run ``stop_tap``, which stops the team
where Python wants to look.
"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from cutaway.ops.cpu.team import Team, barrier
from cutaway.ops.kernel_cache import inlined, inner_jit
from cutaway.ops.simd import atomic_load, atomic_store, call_back, clock_tap, no_tap

tap = no_tap

PLACE: Final = 0
FUNCTION: Final = 1
WANTED: Final = 2
"""Words of a tapped step's notes: how many taps were passed; the address of ``void f(int64 place)``; then for each
place whether it is wanted.
"""

Notes = np.ndarray[Any, np.dtype[np.int64]]


@inner_jit
def _stop_if_wanted(team: Team) -> None:
    place = atomic_load(team.notes + 8 * PLACE)
    atomic_store(team.notes + 8 * PLACE, place + 1)
    if atomic_load(team.notes + 8 * (WANTED + place)) != 0:
        # The operation is complete: all left it by a barrier. Nobody goes on before it was looked at.
        if team.rank == 0:
            call_back(atomic_load(team.notes + 8 * FUNCTION), place)
        barrier(team)


@inlined
def stop_tap(team: Any, name: Any, layer: Any, array: Any) -> None:
    """The tapped run's tap: where its place is wanted, member 0 calls the function while the others wait."""
    _stop_if_wanted(team)


def new_notes(members: int, function: int, places: int, wanted: Iterable[int]) -> Notes:
    """Notes of a tapped step: int64 [members, 2 + places]. function: its address. wanted: some of the places."""
    notes = np.zeros((members, WANTED + places), np.int64)
    notes[:, FUNCTION] = function
    notes[:, [WANTED + place for place in wanted]] = 1
    return notes


__all__ = ["clock_tap", "new_notes", "stop_tap", "tap"]
