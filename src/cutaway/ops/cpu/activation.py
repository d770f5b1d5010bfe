"""The gated activation of the feed-forward: SwiGLU (Shazeer 2020).

In: gate and up side by side. Out: silu(gate) · up.
"""

import numpy as np

from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.math import exp
from cutaway.ops.cpu.team import Team, barrier
from cutaway.ops.kernel_cache import jit
from cutaway.ops.simd import add, div, load, mul, splat, store, sub, zeros

CHUNK = 256  # columns of a work item


@jit
def silu_mul(team: Team, gate_up: Floats, out: Floats) -> None:
    """out = gate / (1 + e^-gate) · up;  gate_up: [T, 2F] with gate before up, out: [T, F]. F is a multiple of 16."""
    F = out.shape[1]
    chunks = (F + CHUNK - 1) // CHUNK
    item = team.rank
    while item < out.shape[0] * chunks:
        t, start = item // chunks, item % chunks * CHUNK
        gates, targets = gate_up.ctypes.data + t * gate_up.strides[0], out.ctypes.data + t * out.strides[0]
        for i in range(4 * start, 4 * min(F, start + CHUNK), 64):
            gate = load(gates + i)
            denominator = add(splat(np.float32(1.0)), exp(sub(zeros(1), gate)))
            store(targets + i, mul(div(gate, denominator), load(gates + 4 * F + i)))
        item += team.size
    barrier(team)
