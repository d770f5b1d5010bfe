"""A team: work is given out once, barriers hold and end, threads keep their caller's floating-point state."""

import gc
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

from cutaway.errors import InvalidRequestError
from cutaway.ops.cpu.team import Team, barrier, share, take
from cutaway.ops.cpu.threads import MOST_THREADS, ThreadTeam, _set_float_environment, float_environment
from cutaway.ops.simd.registers import DEFAULT_FLOAT_ENVIRONMENT
from support.machines import CONTROL_BITS, FLUSH_TO_ZERO
from support.patience import SECONDS
from support.teams import team_of


@numba.njit(nogil=True)
def count_items(team: Team, rounds: int, num_items: int, counts: Any, seen: Any) -> None:
    """counts[rank, item] += 1 for each item taken; seen[rank] counts rounds in which a member's writes were missing."""
    for number in range(rounds):
        item = take(team, num_items)
        while item >= 0:
            counts[team.rank, item] += 1
            item = take(team, num_items)
        barrier(team)
        total = 0
        for rank in range(team.size):
            for i in range(num_items):
                total += counts[rank, i]
        if total != (number + 1) * num_items:
            seen[team.rank] += 1
        barrier(team)


def finishes(work: Any) -> None:
    """Run on another thread; a team that hangs fails the test instead of the suite."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), f"the team did not end within {SECONDS} s"
    assert errors == []


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_every_item_is_taken_exactly_once(threads: int) -> None:
    """And behind a barrier every member sees what all wrote. With more threads than cores too."""
    for num_items, rounds in ((0, 3), (1, 200), (threads - 1, 200), (7, 500), (101, 200)):
        counts, seen = np.zeros((threads, num_items), np.int64), np.zeros(threads, np.int64)

        def work(rounds: int = rounds, num_items: int = num_items, counts: Any = counts, seen: Any = seen) -> None:
            with team_of(threads) as team:
                team.run(count_items, rounds, num_items, counts, seen)

        finishes(work)
        assert (counts.sum(axis=0) == rounds).all()
        assert not seen.any()


@numba.njit
def list_share(team: Team, count: int) -> Any:
    return np.array([piece for piece in share(team, count)], np.int64)  # noqa: C416


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 101])
def test_shares_lie_side_by_side(size: int, count: int) -> None:
    """Each piece once, in the order of ranks; nearly equal parts; a single piece is rank 0's."""
    parts = [list_share(Team(rank, size, 0, 0), count).tolist() for rank in range(size)]
    assert [piece for part in parts for piece in part] == list(range(count))
    assert {len(part) for part in parts} <= {count // size, -(-count // size)}
    assert len(parts[0]) == -(-count // size)


@numba.njit(nogil=True)
def many_barriers(team: Team, rounds: int, ticks: Any) -> None:
    """Each member waits for the others' tick of the same round."""
    for number in range(rounds):
        ticks[team.rank, 0] = number + 1
        barrier(team)
        for rank in range(team.size):
            if ticks[rank, 0] < number + 1:
                ticks[team.rank, 1] += 1
        barrier(team)


def test_barriers_end_with_more_threads_than_cores() -> None:
    ticks = np.zeros((4, 2), np.int64)

    def work() -> None:
        with team_of(4) as team:
            team.run(many_barriers, 5000, ticks)

    finishes(work)
    assert ticks[:, 0].tolist() == [5000] * 4
    assert ticks[:, 1].tolist() == [0] * 4


def test_teams_beside_each_other() -> None:
    """Two teams run at once from two threads, and one team is shared by two callers: steps don't mix."""
    counts = np.zeros((3, 2, 13), np.int64)
    seen = np.zeros((3, 2), np.int64)

    def work() -> None:
        with team_of(2) as one, team_of(2) as other:
            callers = [
                threading.Thread(
                    target=lambda: [one.run(count_items, 1, 13, counts[0] * 0, seen[0]) for _ in range(50)]
                ),
                threading.Thread(
                    target=lambda: [one.run(count_items, 1, 13, counts[1] * 0, seen[1]) for _ in range(50)]
                ),
                threading.Thread(target=lambda: other.run(count_items, 50, 13, counts[2], seen[2])),
            ]
            for caller in callers:
                caller.start()
            for caller in callers:
                caller.join()

    finishes(work)
    assert (counts[2].sum(axis=0) == 50).all()
    assert not seen.any()


@pytest.mark.parametrize("size", [0, -1, MOST_THREADS + 1])
def test_a_size_out_of_range_is_refused_and_leaves_nothing_behind(size: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidRequestError, match=rf"threads is {size}; it must be 1 to {MOST_THREADS}\. Use "):
            ThreadTeam(size)
        gc.collect()


def test_an_error_of_a_member_reaches_the_caller() -> None:
    def fail(member: Team) -> None:
        if member.rank == 1:
            raise ZeroDivisionError("member 1")

    with team_of(3) as team:
        with pytest.raises(ZeroDivisionError, match="member 1"):
            team.run(fail)
        ranks: list[int] = []
        team.run(lambda member: ranks.append(member.rank))  # the team is as good as before
        assert sorted(ranks) == [0, 1, 2]


def test_threads_end_when_the_team_is_closed_or_forgotten() -> None:
    def new_threads(make: Callable[[], ThreadTeam]) -> tuple[ThreadTeam, set[threading.Thread]]:
        before = set(threading.enumerate())
        team = make()
        return team, set(threading.enumerate()) - before

    team, threads = new_threads(lambda: ThreadTeam(3))
    assert len(threads) == 2
    team.close()
    forgotten, more = new_threads(lambda: ThreadTeam(3))
    assert len(more) == 2
    del forgotten
    gc.collect()
    for thread in threads | more:
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_members_run_in_the_contracts_environment_and_the_callers_comes_back() -> None:
    states: list[int] = []

    def look(member: Team) -> None:
        inside = _set_float_environment(DEFAULT_FLOAT_ENVIRONMENT)
        states.append(inside & CONTROL_BITS)

    before = _set_float_environment(FLUSH_TO_ZERO)
    try:
        with team_of(3) as team:
            team.run(look)
        after = _set_float_environment(FLUSH_TO_ZERO)
    finally:
        _set_float_environment(before)
    assert states == [DEFAULT_FLOAT_ENVIRONMENT & CONTROL_BITS] * 3
    assert after & CONTROL_BITS == FLUSH_TO_ZERO & CONTROL_BITS


def test_the_environment_comes_back_after_an_error() -> None:
    before = _set_float_environment(FLUSH_TO_ZERO)
    try:
        with pytest.raises(ValueError, match="inside"), float_environment():
            raise ValueError("inside")
        after = _set_float_environment(FLUSH_TO_ZERO)
    finally:
        _set_float_environment(before)
    assert after & CONTROL_BITS == FLUSH_TO_ZERO & CONTROL_BITS
