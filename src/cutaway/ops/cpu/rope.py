"""Rotary position embedding (Su et al. 2021), in both layouts of pairs.

In: positions and inverse frequencies; then q and k heads. Out: a table of cosines and sines; then the heads, rotated
in place.
"""

import numpy as np

from cutaway.ops.cpu.arrays import Doubles, Floats, Ints
from cutaway.ops.cpu.math import sine_cosine
from cutaway.ops.cpu.team import Team, barrier
from cutaway.ops.kernel_cache import jit


@jit
def rope_angles(team: Team, positions: Ints, inverse_frequencies: Doubles, angles: Floats) -> None:
    """angles[t, 2i] = cos(position[t] · inverse_frequencies[i]), angles[t, 2i + 1] its sine; from float64.

    positions: [T] int32, inverse_frequencies: [Dh/2] float64, angles: [T, Dh] float32.
    """
    t = team.rank
    while t < positions.shape[0]:
        for i in range(inverse_frequencies.shape[0]):
            sine, cosine = sine_cosine(positions[t] * inverse_frequencies[i])
            angles[t, 2 * i] = np.float32(cosine)
            angles[t, 2 * i + 1] = np.float32(sine)
        t += team.size
    barrier(team)


@jit
def rope(team: Team, qkv: Floats, angles: Floats, num_heads: int, head_dim: int, interleaved: bool) -> None:
    """Rotate the first ``num_heads`` heads of each row in place, each pair (a, b) by its angle.

    Pair i is (2i, 2i + 1) in the interleaved layout, (i, i + Dh/2) in the half-split one. qkv: [T, (H + 2 Hkv) · Dh].
    """
    pairs = head_dim // 2
    step, reach = (2, 1) if interleaved else (1, pairs)
    t = team.rank
    while t < qkv.shape[0]:
        for head in range(num_heads):
            for i in range(pairs):
                a = head * head_dim + i * step
                b = a + reach
                cosine, sine = angles[t, 2 * i], angles[t, 2 * i + 1]
                x, y = qkv[t, a], qkv[t, b]
                qkv[t, a] = x * cosine - y * sine
                qkv[t, b] = x * sine + y * cosine
        t += team.size
    barrier(team)
