"""An interruption, as by Ctrl-C, in the middle of a step."""

import signal
import subprocess
import sys
import threading
import time
from types import FrameType

import pytest

from cutaway.ops.cpu.team import Team
from cutaway.ops.cpu.threads import ThreadTeam


class Interruption(BaseException):
    """What the signal handler raises."""


def test_an_interrupted_step_ends_before_the_caller_goes_on() -> None:
    """The caller is done and waits for the other member when the signal comes; that member works in the caller's
    memory."""
    finished = threading.Event()
    main = threading.get_ident()

    def step(member: Team) -> None:
        if member.rank == 1:
            signal.pthread_kill(main, signal.SIGUSR1)
            time.sleep(0.2)
            finished.set()

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interruption

    before = signal.signal(signal.SIGUSR1, interrupt)
    team = ThreadTeam(2)
    try:
        with pytest.raises(Interruption):
            team.run(step)
        assert finished.is_set()
        ranks: list[int] = []
        team.run(lambda member: ranks.append(member.rank))
        assert sorted(ranks) == [0, 1]
    finally:
        signal.signal(signal.SIGUSR1, before)
        team.close()


MANY = """
import random, signal
from cutaway.ops.cpu.team import Team, barrier
from cutaway.ops.cpu.threads import ThreadTeam
from cutaway.ops.kernel_cache import root_jit

@root_jit
def two_barriers(team: Team, a: float, b: float) -> None:
    barrier(team)
    barrier(team)

def interrupt(*_: object) -> None:
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
team = ThreadTeam(2)
team.run(two_barriers, 1.0, 2.0)
interrupted = 0
while interrupted < 2000:
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, 4e-4))
        for _ in range(20):
            team.run(two_barriers, 1.0, 2.0)
    except KeyboardInterrupt:
        interrupted += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(team.run(lambda member: None) >= 0)
"""


def test_interruptions_at_any_moment_leave_nobody_in_a_barrier() -> None:
    """Of compiled code, in the main thread, where Python's handlers run. A member that waits can't be interrupted: what
    would hang here, nothing but SIGKILL would end.
    """
    run = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, timeout=300)
    assert (run.returncode, run.stdout) == (0, "True\n"), run.stderr
