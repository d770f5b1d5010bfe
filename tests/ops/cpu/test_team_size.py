"""How many members a step has, from what steps took and lost; how that is measured; and that no bit depends on it."""

from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

from cutaway.engine.runner import ModelRunner
from cutaway.formats.gguf import open_gguf
from cutaway.hub.resolve import resolve
from cutaway.model.batch import Piece, make_batch
from cutaway.ops.cpu.team import Team, barrier
from cutaway.ops.cpu.team_size import LONGEST_HOLD, UNJUDGED, SizedTeam, TeamSize
from cutaway.ops.simd import processor
from support.teams import team_of

STEP = 0.004  # seconds of a step of one member's share


class Machine:
    """Steps of a team of ``whole`` on a machine where ``free`` cores are ours. Of what a step takes, ``uneven`` is lost
    to uneven work, whatever the size; and each member that has no core costs three slices of 4 ms.
    """

    def __init__(self, whole: int, uneven: float = 0.0) -> None:
        self.size = TeamSize(whole)
        self.uneven = uneven

    def run(self, free: int, steps: int, kinds: int = 1) -> list[int]:
        """The members of each of so many steps. kinds: the second of them takes twice as long as the first, …"""
        used = []
        for number in range(steps):
            members, kind = self.size.next, 1 + number % kinds
            used.append(members)
            slices = 0.012 * max(0, members - free)
            took = kind * STEP * self.size.whole / members / (1 - self.uneven) + slices
            self.size.after(kind, took, self.uneven * (took - slices) + slices)
        return used


@pytest.mark.parametrize("kinds", [1, 3])
@pytest.mark.parametrize("whole", [1, 2, 3, 16])
def test_a_quiet_machine_keeps_all(whole: int, kinds: int) -> None:
    assert set(Machine(whole).run(whole, 1000, kinds)) == {whole}


@pytest.mark.parametrize("uneven", [0.03, 0.1, 0.2, 0.6])
@pytest.mark.parametrize("whole", [2, 8, 16, 64])
def test_uneven_work_is_no_noise(whole: int, uneven: float) -> None:
    """One fewer is tried now and then, for a few steps, ever more seldom."""
    used = Machine(whole, uneven).run(whole, 20_000)
    assert min(used) >= whole - 1
    assert sum(members < whole for members in used[1000:]) <= 0.08 * len(used)


@pytest.mark.parametrize("kinds", [1, 3])
@pytest.mark.parametrize("whole", [2, 3, 16])
def test_a_busy_core_costs_a_member_until_it_is_free(whole: int, kinds: int) -> None:
    machine = Machine(whole)
    machine.run(whole, 100, kinds)
    disturbed = machine.run(whole - 1, 8000, kinds)
    assert whole - 1 in disturbed[:100]
    assert set(disturbed) == {whole, whole - 1}
    trials = sum(members == whole for members in disturbed[4000:])
    assert trials < 0.1 * 4000  # seldom
    quiet = machine.run(whole, 4000, kinds)
    lost = sum(members < whole for members in quiet)
    assert lost * kinds * STEP <= LONGEST_HOLD + 0.5
    assert set(quiet[-1000:]) == {whole}


def test_as_few_as_there_are_cores() -> None:
    used = Machine(16).run(3, 8000)
    assert set(used[4000:]) <= {2, 3, 4}
    assert sum(members == 3 for members in used[4000:]) > 3300
    assert set(Machine(1).run(0, 100)) == {1}  # never none


def test_one_late_member_in_a_long_while_is_no_reason() -> None:
    size = TeamSize(2)
    for _ in range(100):
        for _ in range(9):
            size.after(1, STEP, 0)
        size.after(1, STEP + 0.003, 0.003)
        assert size.next == 2


def test_a_trial_without_a_like_step_before_it_is_given_up() -> None:
    size = TeamSize(2)
    for _ in range(4):
        size.after(1, STEP, 0.9 * STEP)
    assert size.next == 1
    for number in range(UNJUDGED):
        assert size.next == 1
        size.after(2 + number, STEP, 0)
    assert size.next == 2


def test_a_part_of_a_team_runs() -> None:
    with team_of(3) as team:
        for active in (3, 1, 2, 3, None):
            seen: list[tuple[int, int]] = []
            team.run(lambda member, seen=seen: seen.append((member.rank, member.size)), active=active)
            assert sorted(seen) == [(rank, active or 3) for rank in range(active or 3)]


def test_bits_are_those_of_any_size() -> None:
    """Prompt and decoding with a team whose size changes from step to step, against one thread."""
    logits = []
    for threads in (1, 4):
        with open_gguf(resolve("smollm2").path) as gguf, ModelRunner(gguf, threads=threads, context=64) as runner:
            pages = range(runner.kv.num_pages)
            rows = []
            for step in range(8):
                runner._sized_team.size.next = 1 + step % threads
                tokens = list(range(300, 321)) if step == 0 else [400 + step]
                start = 0 if step == 0 else 20 + step
                rows.append(runner.step(make_batch([Piece(start, tokens, pages)])).copy())
            logits.append(np.concatenate(rows))
    assert (logits[0].view(np.int32) == logits[1].view(np.int32)).all()


@numba.njit(nogil=True)
def late(member: Team, rank: int, cycles_late: int) -> None:
    """One member comes so much later to the barrier than the others."""
    if member.rank == rank:
        begin = processor.cycles()
        while processor.cycles() - begin < cycles_late:
            processor.pause()
    barrier(member)


def test_what_members_sleep_is_counted() -> None:
    """A member that is late makes each other one sleep for about as long; and alone there is nobody to wait for."""
    late_by = 200_000_000  # cycles: some 0.1 s
    with team_of(3) as team:
        for rank in (0, 2):
            slept = team.run(late, rank, late_by)
            assert slept > 1.9 * (0.9 * late_by)  # the other two, but for the start and their spinning
        assert team.run(late, 3, late_by) < late_by  # nobody is late
    with team_of(1) as team:
        assert team.run(late, 0, 1000) == 0


def test_what_is_lost_reaches_the_size() -> None:
    heard: list[tuple[int, float, float]] = []
    with team_of(3) as team:
        sized = SizedTeam(team)
        sized.size.after = lambda *step: heard.append(step)  # type: ignore[method-assign]
        sized.run(7, late, 1, 200_000_000)
    ((kind, took, lost),) = heard
    assert kind == 7
    assert 0.5 * took < lost <= took


def test_two_callers_share_a_sized_team() -> None:
    """The size changes beneath one of them all the time."""
    with team_of(2) as team:
        sized = SizedTeam(team)

        def steps() -> None:
            for _ in range(2000):
                sized.run(1, late, 0, 0)
                sized.size.next = 3 - sized.size.next

        with ThreadPoolExecutor(2) as pool:
            for future in [pool.submit(steps) for _ in range(2)]:
                future.result(300)
