"""What a step costs the scheduler while many requests wait. No model is run: a step's tokens are made up.

    python benchmarks/scheduling.py [--waiting 0 1000 10000 20000] [--running 32] [--steps 300]

In: how many wait. Out: for each policy, microseconds of processor time of ``schedule`` and ``complete`` together in a
step of decoding: the median, the 99th percentile, the most. Prompts of 128 to 512 tokens share beginnings, and answers
of 64 to 256 end one after the other, so that newcomers are let in all the time, and each that leaves is replaced at the
end of the queue. Blocks are taken, cached and given back as with a model.
"""

import argparse
import random
import time

import numpy as np
import numpy.typing as npt

from cutaway.memory.block_manager import BlockManager
from cutaway.scheduler.continuous import ContinuousPolicy
from cutaway.scheduler.limits import SchedulerLimits
from cutaway.scheduler.policy import Policy
from cutaway.scheduler.request import Request
from cutaway.scheduler.scheduler import Scheduler
from cutaway.scheduler.static import StaticPolicy
from cutaway.scheduler.step import Sampled


def policies() -> dict[str, Policy]:
    """One of each."""
    return {
        "continuous": ContinuousPolicy(),
        "continuous, whole prompts": ContinuousPolicy(chunked_prefill=False),
        "static": StaticPolicy(),
        "bucketed": StaticPolicy(bucketed=True),
    }


def measure(policy: Policy, waiting: int, running: int, steps: int) -> npt.NDArray[np.float64]:
    """Microseconds of each of ``steps`` steps, once all rows run."""
    rng = random.Random(waiting)
    limits = SchedulerLimits(256, running, max_waiting=waiting + 2 * running, max_waiting_tokens=1 << 30)
    scheduler = Scheduler(BlockManager(running * 48, 16), limits, policy)
    beginnings = [[rng.randrange(50_000) for _ in range(400)] for _ in range(20)]
    number = 0

    def fill() -> None:
        nonlocal number
        while scheduler.num_waiting + scheduler.num_running < waiting + running:
            length = rng.randint(128, 512)
            ids = [
                *rng.choice(beginnings)[: length // 2],
                *(rng.randrange(50_000) for _ in range(length - length // 2)),
            ]
            priority, deadline = rng.randrange(8), 1e9 + number
            scheduler.submit(
                Request(f"{number}", tuple(ids), rng.randint(64, 256), priority=priority, deadline=deadline)
            )
            number += 1

    found = []
    for step_number in range(4 * steps):
        fill()
        begin = time.thread_time()
        step = scheduler.schedule(0.0)
        planned = time.thread_time()
        sampled = [[Sampled(rng.randrange(50_000)) for _ in piece.choices] for piece in step.pieces]
        made_up = time.thread_time()
        scheduler.complete(step, sampled)
        if step_number >= 3 * steps:
            found.append(1e6 * (time.thread_time() - made_up + planned - begin))
    return np.array(found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, nargs="+", default=[0, 1000, 10_000, 20_000])
    parser.add_argument("--running", type=int, default=32)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    print(f"{'policy':26s}{'waiting':>9s}{'median':>9s}{'99 %':>9s}{'most':>9s}")
    for waiting in options.waiting:
        for name, policy in policies().items():
            found = measure(policy, waiting, options.running, options.steps)
            row = (np.median(found), np.percentile(found, 99), found.max())
            print(f"{name:26s}{waiting:9d}" + "".join(f"{value:9.0f}" for value in row), flush=True)


if __name__ == "__main__":
    main()
