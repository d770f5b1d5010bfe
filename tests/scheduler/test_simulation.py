"""Random worlds, each a function of its seed: nothing leaks or is owned twice, every answer is that of a run alone.

10,000 requests; a million with CUTAWAY_LONG_TESTS=1. A seed that fails is printed; CUTAWAY_SIMULATION_SEED=N runs it.
"""

import os
from collections import Counter

import pytest

from support.simulation import POLICIES, Simulation, world_of

REQUESTS = 100  # of a world
WORLDS = 10_000 if os.environ.get("CUTAWAY_LONG_TESTS") == "1" else 100
ONE_SEED = os.environ.get("CUTAWAY_SIMULATION_SEED")


@pytest.mark.parametrize("policy", POLICIES)
def test_random_worlds(policy: str) -> None:
    seeds = [int(ONE_SEED)] if ONE_SEED else range(POLICIES.index(policy), WORLDS, len(POLICIES))
    events: Counter[str] = Counter()
    for seed in seeds:
        simulation = Simulation(world_of(seed, policy))
        try:
            simulation.run(REQUESTS)
        except Exception as error:
            last = "\n".join(map(str, simulation.scheduler.log.read()[-10:]))
            raise AssertionError(
                f"CUTAWAY_SIMULATION_SEED={seed} replays it, in {simulation.world}, after {simulation.steps} steps: "
                f"{type(error).__name__}: {error}\n{last}"
            ) from error
        events.update(simulation.events)
    if ONE_SEED:
        return
    # The worlds are hard enough only if all this came to pass.
    phases = {"submitted", "ended", "queue full", "never fits", "expired", "failed", "scored"}
    phases |= {f"aborted {phase}" for phase in ("before a step", "in flight", "after a step")}
    if policy.startswith("continuous"):
        phases |= {"preempted", "preempted again", "copies", "cached"}
    else:
        phases.add("pads")
    assert {phase for phase in phases if not events[phase]} == set(), events


def test_a_seed_replays() -> None:
    runs = [Simulation(world_of(2, "continuous")) for _ in range(2)]
    for run in runs:
        run.run(50)
    assert runs[0].scheduler.log.read() == runs[1].scheduler.log.read()
    assert runs[0].events == runs[1].events
