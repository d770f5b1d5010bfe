"""RMS normalisation (Zhang and Sennrich 2019).

In: x [T, D] float32, weight [D] float32. Out: x / √(mean(x²) + ε) · weight, in another array; x is left as it was.
"""

import numpy as np

from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.team import Team, barrier
from cutaway.ops.kernel_cache import jit
from cutaway.ops.simd import fma, lane_sum, load, mul, splat, store, zeros


@jit
def rms_norm(team: Team, x: Floats, weight: Floats, epsilon: np.float32, out: Floats) -> None:
    """out[t] = x[t] / √(mean(x[t]²) + ε) · weight. D is a multiple of 16.

    The sum of squares runs in 16 lanes along the row, then over the lanes in the fixed tree.
    """
    D = x.shape[1]
    t = team.rank
    while t < x.shape[0]:
        source, target = x.ctypes.data + t * x.strides[0], out.ctypes.data + t * out.strides[0]
        squares = zeros(1)
        for i in range(0, 4 * D, 64):
            v = load(source + i)
            squares = fma(v, v, squares)
        mean = lane_sum(squares) / np.float32(D)
        scale = splat(np.float32(1.0) / np.sqrt(mean + epsilon))
        for i in range(0, 4 * D, 64):
            store(target + i, mul(mul(load(source + i), scale), load(weight.ctypes.data + i)))
        t += team.size
    barrier(team)
