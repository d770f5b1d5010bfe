"""The probes compute what they are counted for, to the last share, line and pass."""

from typing import Any

import numpy as np
import pytest

from cutaway.ops.cpu import probes
from cutaway.ops.cpu.memory import Arena
from cutaway.ops.cpu.threads import ThreadTeam

MEMBERS = 2


@pytest.fixture(scope="module")
def team() -> ThreadTeam:
    return ThreadTeam(MEMBERS)


def run(team: ThreadTeam, function: Any, *arguments: Any) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The members' sinks after the probe, which must have taken time."""
    sink = np.full((MEMBERS, 512), -1, np.int32)
    elapsed = np.zeros(1, np.int64)
    team.run(function, *arguments, sink, elapsed)
    assert elapsed[0] > 0
    return sink


def test_streaming_reads_every_byte_once(team: ThreadTeam) -> None:
    words = np.random.default_rng(1).integers(-1000, 1000, 3 * MEMBERS * probes.STREAM_STEP // 4, dtype=np.int32)
    memory = Arena(words.nbytes).take(words.nbytes)
    memory[:] = words.view(np.uint8)
    sink = run(team, probes.stream_read, int(memory.ctypes.data), words.nbytes)
    assert (sink[:, :16] == words.reshape(MEMBERS, -1, 16).sum(axis=1)).all()


def test_dot_products_are_as_many_as_are_counted(team: ThreadTeam) -> None:
    random = np.random.default_rng(2)
    weights = random.integers(0, 128, (probes.DOT_LINES, 16, 4), dtype=np.uint8)
    activations = random.integers(-127, 128, (probes.DOT_ROWS, 4), dtype=np.int8)
    sink = run(team, probes.dot_products, int(weights.ctypes.data), int(activations.ctypes.data), 3)
    exact = 3 * np.einsum("lij,rj->ri", weights.astype(np.int64), activations.astype(np.int64))
    for row in sink[:, : 16 * probes.DOT_ROWS]:
        assert (row.reshape(probes.DOT_ROWS, 16) == exact).all()


def test_multiply_adds_are_as_many_as_are_counted(team: ThreadTeam) -> None:
    sink = run(team, probes.multiply_adds, 1000, np.float32(0.5))
    assert (sink[:, : 16 * probes.FMA_ROWS].view(np.float32) == 250.0).all()
    assert (sink[:, 16 * probes.FMA_ROWS :] == -1).all()
