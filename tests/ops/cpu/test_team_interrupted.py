"""An interruption, as by Ctrl-C, in the middle of a step."""

import signal
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
