"""Calls that a team shares return what they return one by one."""

from typing import Any

import numpy as np
import pytest

from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.calls import call_shared, calls_of_members
from cutaway.ops.cpu.threads import ThreadTeam
from cutaway.ops.kernel_cache import root_jit


@root_jit
def summed(values: Floats, scale: int, out: Floats) -> Any:
    """The sum, how many there are; out[0] = the scaled sum."""
    total = np.float32(0)
    for value in values:
        total += value
    out[0] = scale * total
    return total, values.shape[0]


@root_jit
def failing(values: Floats, scale: int) -> int:
    if scale == 2:
        raise ValueError("two")
    return scale


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_each_call_is_made_once(threads: int) -> None:
    team = ThreadTeam(threads)
    rng = np.random.default_rng(threads)
    for count in (1, 2, 7, 30):
        calls = [
            (rng.integers(0, 9, 3 + number).astype(np.float32), number - 4, np.zeros(1, np.float32))
            for number in range(count)
        ]
        found = call_shared(summed, calls, team)
        assert found == [(float(values.sum()), len(values)) for values, _, _ in calls]
        assert [float(out[0]) for _, _, out in calls] == [float(scale * values.sum()) for values, scale, _ in calls]
        assert [call for part in calls_of_members(team, count) for call in part] == list(range(count))
    team.close()


def test_a_fault_in_compiled_code_is_told() -> None:
    team, values = ThreadTeam(2), np.zeros(3, np.float32)
    assert call_shared(failing, [(values, 1), (values, 3)], team) == [1, 3]
    with pytest.raises(RuntimeError, match="compiled code ended with status"):
        call_shared(failing, [(values, 1), (values, 2)], team)
    team.close()


def test_calls_of_other_types_are_refused() -> None:
    team, values = ThreadTeam(1), np.zeros(3, np.float32)
    with pytest.raises(AssertionError, match="differ in the types"):
        call_shared(failing, [(values, 1), (values, 1.0)], team)
    team.close()
