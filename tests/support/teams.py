"""Runs one operation on a team of so many threads, as the forward does.

In: a collective operation and its arguments behind the team. Out: the arrays that it wrote.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cutaway.ops.cpu.threads import ThreadTeam


@contextmanager
def team_of(threads: int) -> Iterator[ThreadTeam]:
    """A team that is closed again."""
    team = ThreadTeam(threads)
    try:
        yield team
    finally:
        team.close()


def run(operation: Callable[..., None], *arguments: Any, threads: int = 1) -> None:
    """``operation(member, *arguments)`` by every member."""
    with team_of(threads) as team:
        team.run(operation, *arguments)
