"""How many members a step has, from what steps took and lost; and that bits don't depend on it."""

import numpy as np
import pytest

from cutaway.engine.runner import ModelRunner
from cutaway.formats.gguf import open_gguf
from cutaway.hub.resolve import resolve
from cutaway.model.batch import Piece, make_batch
from cutaway.ops.cpu.team_size import LONGEST_HOLD, TeamSize
from cutaway.ops.cpu.threads import ThreadTeam

STEP = 0.004  # seconds of a step of the whole team on a quiet machine


def sizes(size: TeamSize, free_cores: int, steps: int) -> list[int]:
    """The members of each step on a machine where so many cores are ours, and each member beyond them makes a step wait
    for three slices of 4 ms.
    """
    used = []
    for _ in range(steps):
        used.append(size.next)
        lost = 0.012 * max(0, size.next - free_cores)
        size.after(STEP * size.whole / size.next + lost, lost)
    return used


@pytest.mark.parametrize("whole", [1, 2, 3, 16])
def test_a_quiet_machine_keeps_all(whole: int) -> None:
    assert set(sizes(TeamSize(whole), whole, 1000)) == {whole}


@pytest.mark.parametrize("whole", [2, 3, 16])
def test_a_busy_core_costs_a_member_until_it_is_free(whole: int) -> None:
    size = TeamSize(whole)
    sizes(size, whole, 100)
    disturbed = sizes(size, whole - 1, 4000)
    assert whole - 1 in disturbed[:3]
    assert set(disturbed) == {whole, whole - 1}
    trials = [number for number, used in enumerate(disturbed) if used == whole]
    gaps = np.diff([number for number in trials if number > 3]).tolist()
    assert gaps == sorted(gaps)  # ever more seldom
    assert gaps[-1] > 10 * gaps[0]
    quiet = sizes(size, whole, 4000)
    assert sum(used < whole for used in quiet) * STEP <= LONGEST_HOLD
    assert set(quiet[-1000:]) == {whole}
    again = sizes(size, whole - 1, 100)  # what was learnt of the first noise is forgotten
    assert again.count(whole) > 3


def test_as_few_as_there_are_cores() -> None:
    size = TeamSize(16)
    assert set(sizes(size, 3, 4000)[2000:]) <= {3, 4}
    assert set(sizes(TeamSize(1), 0, 100)) == {1}  # never none


def test_one_late_member_in_a_long_while_is_no_reason() -> None:
    size = TeamSize(2)
    for _ in range(100):
        for _ in range(9):
            size.after(STEP, 0)
        size.after(STEP + 0.004, 0.004)
        assert size.next == 2


def test_a_part_of_a_team_runs() -> None:
    team = ThreadTeam(3)
    for active in (3, 1, 2, 3):
        team.use(active)
        seen: list[tuple[int, int]] = []
        team.run(lambda member, seen=seen: seen.append((member.rank, member.size)))
        assert sorted(seen) == [(rank, active) for rank in range(active)]
    team.close()


def test_bits_are_those_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompt and decoding with a team whose size changes from step to step, against one thread."""
    logits = []
    for threads in (1, 4):
        with open_gguf(resolve("smollm2").path) as gguf, ModelRunner(gguf, threads=threads, context=64) as runner:
            monkeypatch.setattr(runner, "_sized_team", runner.team)
            pages = range(runner.kv.num_pages)
            rows = []
            for step in range(8):
                runner.team.use(1 + step % threads)
                tokens = list(range(300, 321)) if step == 0 else [400 + step]
                start = 0 if step == 0 else 20 + step
                rows.append(runner.step(make_batch([Piece(start, tokens, pages)])).copy())
            logits.append(np.concatenate(rows))
    assert (logits[0].view(np.int32) == logits[1].view(np.int32)).all()
