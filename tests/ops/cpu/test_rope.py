"""Rotary positions: the table of angles against decimal arithmetic, the rotation against complex numbers."""

from decimal import Decimal, localcontext

import numpy as np
import numpy.typing as npt
import pytest

from cutaway.model.positions import inverse_frequencies
from cutaway.ops.cpu import rope, rope_angles
from support.bits import differing
from support.decimals import cos_sin
from support.teams import run

ONE = np.ones(1)


@pytest.mark.parametrize("base", [10_000.0, 100_000.0, 1_000_000.0])
def test_angles_at_any_position(base: float) -> None:
    """Cosine and sine of position · frequency, where the product is a float64 as documented: to the last bit of
    float32, but for a tie.
    """
    positions = np.array([0, 1, 2, 15, 16, 63, 64, 511, 8191, 131_071, 1_000_003], np.int32)
    frequencies = inverse_frequencies(base, 32)
    angles = np.full((len(positions), 32), np.nan, np.float32)
    run(rope_angles, positions, frequencies[None], ONE, angles, threads=2)
    for t, position in enumerate(positions):
        for i, frequency in enumerate(frequencies):
            cosine, sine = cos_sin(Decimal(float(position * frequency)))
            for got, exact in ((angles[t, 2 * i], cosine), (angles[t, 2 * i + 1], sine)):
                assert abs(Decimal(float(got)) - exact) <= Decimal(2) ** -25 * Decimal("1.0001")


def test_the_float64_product_costs_nothing_visible() -> None:
    """Against position · base^(-2i/Dh) in 50 digits: the rounding of the frequency is all that is added."""
    positions = np.array([8191, 131_071], np.int32)
    angles = np.zeros((2, 64), np.float32)
    run(rope_angles, positions, inverse_frequencies(100_000.0, 64)[None], ONE, angles)
    with localcontext() as context:
        context.prec = 50
        for t, position in enumerate(positions):
            for i in range(32):
                exact = Decimal(int(position)) * Decimal(100_000) ** (Decimal(-2 * i) / 64)
                cosine, sine = cos_sin(exact)
                assert abs(Decimal(float(angles[t, 2 * i])) - cosine) < Decimal("1e-7")
                assert abs(Decimal(float(angles[t, 2 * i + 1])) - sine) < Decimal("1e-7")


def rotated(
    qkv: npt.NDArray[np.float32], radians: npt.NDArray[np.float64], heads: int, Dh: int, interleaved: bool
) -> npt.NDArray[np.float64]:
    """Each pair as a complex number times e^(iφ)."""
    out = qkv.astype(np.float64)
    for t in range(len(qkv)):
        for head in range(heads):
            for i in range(Dh // 2):
                a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + Dh // 2)
                a, b = head * Dh + a, head * Dh + b
                turned = complex(qkv[t, a], qkv[t, b]) * np.exp(1j * radians[t, i])
                out[t, a], out[t, b] = turned.real, turned.imag
    return out


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("heads", "others", "Dh"), [(3, 2, 16), (5, 1, 48), (2, 3, 80)])
def test_rotation_in_both_layouts(heads: int, others: int, Dh: int, interleaved: bool) -> None:
    rng = np.random.default_rng(Dh)
    T = 7
    qkv = rng.standard_normal((T, (heads + others) * Dh)).astype(np.float32)
    positions = rng.integers(0, 5000, T).astype(np.int32)
    frequencies = inverse_frequencies(10_000.0, Dh)
    angles = np.zeros((T, Dh), np.float32)
    run(rope_angles, positions, frequencies[None], ONE, angles)
    expected = rotated(qkv, positions[:, None] * frequencies, heads, Dh, interleaved)
    others_before = qkv[:, heads * Dh :].copy()
    alone = qkv.copy()
    run(rope, qkv, angles, 0, Dh, heads, Dh, interleaved, threads=3)
    assert np.abs(qkv - expected).max() < 1e-6
    assert differing(qkv[:, heads * Dh :], others_before) == 0, "values are not to be rotated"
    for t in range(T):
        run(rope, alone[t : t + 1], angles[t : t + 1], 0, Dh, heads, Dh, interleaved)
    assert differing(alone, qkv) == 0


def test_scores_depend_on_the_distance_alone() -> None:
    """What the rotation is for: q·k after it is a function of position(q) - position(k)."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 64)).astype(np.float32)
    frequencies = inverse_frequencies(10_000.0, 64)
    for interleaved in (True, False):
        scores = []
        for offset in (0, 1, 77, 4000):
            rows = np.stack([q, k])
            angles = np.zeros((2, 64), np.float32)
            run(rope_angles, np.array([offset + 9, offset], np.int32), frequencies[None], ONE, angles)
            run(rope, rows, angles, 0, 64, 1, 64, interleaved)
            scores.append(float(rows[0].astype(np.float64) @ rows[1]))
        assert np.ptp(scores) < 1e-5
        assert abs(scores[0] - float(q.astype(np.float64) @ k)) > 1e-2


@pytest.mark.parametrize("interleaved", [True, False])
def test_part_of_a_head_by_one_of_two_tables(interleaved: bool) -> None:
    """The first R numbers are turned as a head of R numbers would be; the rest, and what no table turns, stays."""
    rng = np.random.default_rng(4)
    T, heads, Dh, R = 5, 3, 48, 32
    tables = np.stack([inverse_frequencies(10_000.0, R), inverse_frequencies(1_000_000.0, R)])
    positions = rng.integers(0, 5000, T).astype(np.int32)
    angles = np.full((T, 2 * R), np.nan, np.float32)
    run(rope_angles, positions, tables, np.array([1.0, 1.25]), angles, threads=2)
    for table, magnitude in ((0, 1.0), (1, 1.25)):
        qkv = rng.standard_normal((T, heads * Dh)).astype(np.float32)
        part = np.ascontiguousarray(qkv.reshape(T, heads, Dh)[:, :, :R]).reshape(T, -1)
        expected = qkv.astype(np.float64).reshape(T, heads, Dh).copy()
        turned = rotated(part, positions[:, None] * tables[table], heads, R, interleaved)
        expected[:, :, :R] = magnitude * turned.reshape(T, heads, R)
        run(rope, qkv, angles, table, R, heads, Dh, interleaved, threads=2)
        assert np.abs(qkv.reshape(T, heads, Dh) - expected).max() < 2e-6
        before = qkv.copy()
        run(rope, qkv, angles, -1, R, heads, Dh, interleaved, threads=2)
        assert differing(qkv, before) == 0


def test_a_model_without_tables() -> None:
    angles = np.zeros((3, 0), np.float32)
    run(rope_angles, np.arange(3, dtype=np.int32), np.zeros((0, 0)), np.zeros(0), angles, threads=2)
