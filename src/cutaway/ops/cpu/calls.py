"""Several calls of one compiled function, shared out to a team: a member makes some of them one after the other.

In: the function, and the arguments of each call. Out: what each returns. Two calls may write to the same memory if one
member makes both.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cutaway.ops.cpu.team import Team, share
from cutaway.ops.cpu.threads import ThreadTeam
from cutaway.ops.kernel_cache import Compiled, root_jit
from cutaway.ops.simd import call_entry

Words = npt.NDArray[np.int64]


@root_jit
def make_calls(team: Team, entry: int, words: Words, results: Words, statuses: Words) -> None:
    """words: [N, W] the arguments of each call; results: [N, K]; statuses: [N]. All calls have one entry."""
    for call in share(team, words.shape[0]):
        arguments, room = words.ctypes.data + call * words.strides[0], results.ctypes.data + call * results.strides[0]
        statuses[call] = call_entry(entry, arguments, room)


def calls_of_members(team: ThreadTeam, count: int) -> list[range]:
    """Which of ``count`` calls each member makes."""
    return [share.py_func(member, count) for member in team.members()]  # type: ignore[attr-defined]


def call_shared(function: Any, calls: Sequence[tuple[Any, ...]], team: ThreadTeam) -> list[Any]:
    """What ``function`` returns for each tuple of arguments, in their order. All are of the same types."""
    assert isinstance(function, Compiled)
    ready = [function.made_ready(*arguments) for arguments in calls]
    entry = ready[0][0]
    assert all(each[0] is entry for each in ready), "the calls differ in the types of their arguments"
    words = np.frombuffer(bytearray(b"".join([each[1] for each in ready])), np.int64).reshape(len(calls), -1)
    results = np.zeros((len(calls), entry.num_results), np.int64)
    statuses = np.zeros(len(calls), np.int64)
    team.run(make_calls, entry.address, words, results, statuses)
    return [entry.result(status, row) for status, row in zip(statuses.tolist(), results, strict=True)]
