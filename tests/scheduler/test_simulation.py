"""Random worlds, each a function of its seed: nothing leaks or is owned twice, every answer is that of a run alone.

10,000 requests; a million with CUTAWAY_LONG_TESTS=1, in minutes: there, what costs more than a step itself (a look at
every block and every sequence) is done at every eighth of the three moments of each step, all else at each of them.
A seed that fails is printed with the command that replays it, with every check at every moment.
"""

import os
from collections import Counter

import pytest

from support.long import LONG
from support.simulation import POLICIES, Simulation, world_of

REQUESTS = 100  # of a world
WORLDS = 10_000 if LONG else 100
ONE_SEED = os.environ.get("CUTAWAY_SIMULATION_SEED")
CHECK_EVERY = 8 if LONG and not ONE_SEED else 1


@pytest.mark.parametrize("policy", POLICIES)
def test_random_worlds(policy: str) -> None:
    seeds = [int(ONE_SEED)] if ONE_SEED else range(POLICIES.index(policy), WORLDS, len(POLICIES))
    events: Counter[str] = Counter()
    for seed in seeds:
        simulation = Simulation(world_of(seed, policy), CHECK_EVERY)
        try:
            simulation.run(REQUESTS)
        except Exception as error:
            last = "\n".join(map(str, simulation.scheduler.log.read()[-10:]))
            raise AssertionError(
                f"{type(error).__name__}: {error}, after {simulation.steps} steps in {simulation.world}\n{last}\n"
                f"To replay it: CUTAWAY_SIMULATION_SEED={seed} pytest "
                f"'tests/scheduler/test_simulation.py::test_random_worlds[{policy}]'"
            ) from error
        events.update(simulation.events)
    if ONE_SEED:
        return
    # The worlds are hard enough only if all this came to pass.
    phases = {
        "submitted",
        "ended",
        "queue full",
        "never fits",
        "expired",
        "failed",
        "scored",
        "hidden last",
        "hidden all",
        "refilled",
    }
    phases |= {f"aborted {phase}" for phase in ("before a step", "in flight", "after a step")}
    states = {"waiting", "in its prompt", "decoding"}
    if policy.startswith("continuous"):
        phases |= {"preempted", "preempted again", "copies", "cached", "tails"}
        states |= {"preempted", "forked"}
    else:
        phases.add("pads")
    phases |= {f"aborted while {state}" for state in states}
    assert {phase for phase in phases if not events[phase]} == set(), events


def test_a_seed_replays() -> None:
    runs = [Simulation(world_of(2, "continuous")) for _ in range(2)]
    for run in runs:
        run.run(50)
    assert runs[0].scheduler.log.read() == runs[1].scheduler.log.read()
    assert runs[0].events == runs[1].events
