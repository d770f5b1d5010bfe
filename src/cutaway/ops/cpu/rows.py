"""Moves of whole rows: the residual addition, and the choice of the rows whose logits are wanted.

In and out: float32 rows [T, D].
"""

from cutaway.ops.cpu.arrays import Floats, Ints
from cutaway.ops.cpu.team import Team, barrier, share
from cutaway.ops.kernel_cache import jit


@jit
def add_rows(team: Team, x: Floats, y: Floats) -> None:
    """x += y, both [T, D]."""
    for t in share(team, x.shape[0]):
        for i in range(x.shape[1]):
            x[t, i] += y[t, i]
    barrier(team)


@jit
def take_rows(team: Team, x: Floats, rows: Ints, out: Floats) -> None:
    """out[r] = x[rows[r]]; x: [T, D], rows: [R] int32, out: [R, D]."""
    for r in share(team, rows.shape[0]):
        for i in range(x.shape[1]):
            out[r, i] = x[rows[r], i]
    barrier(team)
