"""A team's size: what is refused, and that a refused team leaves nothing behind."""

import gc
import sys
from typing import Any

import pytest

from cutaway.errors import InvalidRequestError
from cutaway.ops.cpu.threads import MOST_THREADS, ThreadTeam


@pytest.mark.parametrize("size", [-1, 0, MOST_THREADS + 1])
def test_a_size_outside_the_limits_is_refused(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    with pytest.raises(InvalidRequestError, match=rf"threads is {size}; it must be 1 to {MOST_THREADS}"):
        ThreadTeam(size)
    gc.collect()
    assert complaints == []
