"""The time-stamp counter: read from Python, put at the start of a timed step, and converted to seconds.

In: nothing, or a step's members. Out: cycles; seconds a cycle, from two readings beside the system's clock. The counter
runs at a constant rate on every processor above the floor, whatever the core's frequency.

A timed step's first stamp is the counter as Python reads it just before the threads are handed the step. The second is
written by ``start`` inside the step, behind a barrier: up to there the threads woke up, and from there on they compute.
"""

import time
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cutaway.ops.cpu.arrays import Floats, Ints
from cutaway.ops.cpu.embedding import embed
from cutaway.ops.cpu.tap import clock_tap
from cutaway.ops.cpu.team import Team, barrier
from cutaway.ops.kernel_cache import jit
from cutaway.ops.simd import cycles

Clocks: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


@jit
def read_cycles() -> int:
    """The time-stamp counter now."""
    return cycles()


@jit
def embed_timed(team: Team, weights: Any, tokens: Ints, scale: np.float32, x: Floats) -> None:
    """``embed``, the forward's first operation, behind the stamp that marks the start of computation."""
    barrier(team)
    clock_tap(team, "start", -1, x)
    embed(team, weights, tokens, scale, x)


class Reading(NamedTuple):
    """Both clocks at one moment."""

    nanoseconds: int
    cycles: int


def read_clocks() -> Reading:
    """Both clocks now: of a few readings of the counter between two of the system's clock, the one least disturbed."""
    windows = []
    for _ in range(5):
        before = time.perf_counter_ns()
        count = read_cycles()
        windows.append((time.perf_counter_ns() - before, before, count))
    width, before, count = min(windows)
    return Reading(before + width // 2, count)


def seconds_per_cycle(first: Reading, last: Reading) -> float:
    """The counter's period, from two readings some time apart."""
    assert last.cycles > first.cycles, "the readings must be in order"
    return (last.nanoseconds - first.nanoseconds) * 1e-9 / (last.cycles - first.cycles)


def new_clocks(members: int, taps: int) -> Clocks:
    """Clocks for a timed step of so many taps: int64 [members, words]; a row is how many stamps, then the stamps.

    The first stamp is written here: call it last before the step.
    """
    clocks = np.zeros((members, 1 + 2 + taps), np.int64)
    clocks[:, 0] = 1
    clocks[:, 1] = read_cycles()
    return clocks
