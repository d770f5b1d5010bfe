"""The probes compute what they are counted for, to the last share, line and pass."""

from typing import Any

import numpy as np
import pytest

from cutaway.ops.cpu import probes
from cutaway.ops.cpu.memory import Arena
from cutaway.ops.cpu.threads import ThreadTeam
from cutaway.ops.simd import LOWERING

MEMBERS = 2


@pytest.fixture(scope="module")
def team() -> ThreadTeam:
    return ThreadTeam(MEMBERS)


def run(team: ThreadTeam, function: Any, *arguments: Any) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The members' sinks after the probe, which must have taken time."""
    sink = np.full((MEMBERS, 1100), -1, np.int32)
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


@pytest.mark.skipif(LOWERING != "amx", reason="the probe needs AMX: see cutaway doctor")
def test_matrix_products_are_as_many_as_are_counted(team: ThreadTeam) -> None:
    """An instruction multiplies 16 rows of 64 bytes with 16 columns: as many products as the rate counts."""
    matrices = np.random.default_rng(3).integers(-128, 128, (4, 16, 64), dtype=np.int8)
    a = matrices[:2].astype(np.int64)
    b = matrices[2:].reshape(2, 16, 16, 4).transpose(0, 1, 3, 2).reshape(2, 64, 16).astype(np.int64)
    sink = run(team, probes.matrix_products, int(matrices.ctypes.data), 7)
    for row in sink:
        sums = row[: probes.SUMS * 256].reshape(2, 2, 16, 16)
        assert all((sums[j, i] == 7 * a[i] @ b[j]).all() for i in range(2) for j in range(2))
    assert (sink[:, probes.SUMS * 256 :] == -1).all()
    counted = probes.SUMS * probes.MATRIX_PRODUCTS
    assert counted == sums.size * a.shape[2], "a sum is of 64 products"
