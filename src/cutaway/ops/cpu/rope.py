"""Rotary position embedding (Su et al. 2021), in both layouts of pairs.

In: positions and tables of inverse frequencies; then q and k heads. Out: cosines and sines by each table; then the
heads, rotated in place.
"""

import numpy as np

from cutaway.ops.cpu.arrays import Doubles, Floats, Ints
from cutaway.ops.cpu.math import sine_cosine
from cutaway.ops.cpu.team import Team, barrier, share
from cutaway.ops.kernel_cache import inner_jit, jit


@jit
def rope_angles(team: Team, positions: Ints, inverse_frequencies: Doubles, magnitudes: Doubles, angles: Floats) -> None:
    """The cosine and the sine of position[t] · inverse_frequencies[g, i], times magnitudes[g]; from float64.

    positions: [T] int32, inverse_frequencies: [G, R/2] float64, magnitudes: [G] float64, angles: [T, G · R] float32,
    each table's pairs in turn, cosine before sine. Nothing where there is no table.
    """
    tables, pairs = inverse_frequencies.shape
    if tables == 0:
        return
    for t in share(team, positions.shape[0]):
        for table in range(tables):
            for i in range(pairs):
                sine, cosine = sine_cosine(positions[t] * inverse_frequencies[table, i])
                place = 2 * (table * pairs + i)
                angles[t, place] = np.float32(cosine * magnitudes[table])
                angles[t, place + 1] = np.float32(sine * magnitudes[table])
    barrier(team)


@inner_jit
def _turned(x: np.float32, y: np.float32, cosine: np.float32, sine: np.float32) -> tuple[np.float32, np.float32]:
    """The pair (x, y), rotated by the angle of this cosine and sine."""
    return x * cosine - y * sine, x * sine + y * cosine


@jit
def rope(
    team: Team,
    qkv: Floats,
    angles: Floats,
    table: int,
    rotary_dim: int,
    num_heads: int,
    head_dim: int,
    interleaved: bool,
) -> None:
    """Rotate the first ``num_heads`` heads of each row in place, each pair (a, b) of their first R numbers by its angle
    in the table; nothing where the table is -1.

    Pair i is (2i, 2i + 1) in the interleaved layout, (i, i + R/2) in the half-split one. qkv: [T, (H + 2 Hkv) · Dh],
    angles: [T, G · R] as ``rope_angles`` writes them, rotary_dim: R.
    """
    if table < 0:
        return
    pairs = rotary_dim // 2
    for t in share(team, qkv.shape[0]):
        turn = angles[t, table * rotary_dim : (table + 1) * rotary_dim]  # cosine and sine of each pair
        for head in range(num_heads):
            numbers = qkv[t, head * head_dim : head * head_dim + rotary_dim]
            if interleaved:
                for i in range(pairs):
                    a, b = _turned(numbers[2 * i], numbers[2 * i + 1], turn[2 * i], turn[2 * i + 1])
                    numbers[2 * i], numbers[2 * i + 1] = a, b
            else:
                first, second = numbers[:pairs], numbers[pairs:]
                for i in range(pairs):
                    first[i], second[i] = _turned(first[i], second[i], turn[2 * i], turn[2 * i + 1])
    barrier(team)
