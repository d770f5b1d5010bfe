"""Norms against float64: RMS norm and layer norm, of rows and of heads; and inputs left alone."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cutaway.ops.cpu import head_norm, norm
from cutaway.ops.cpu.norm import NORM
from support.bits import differing
from support.teams import run

Floats = npt.NDArray[np.float32]
ABSENT = np.zeros((), NORM)[()]


def record(weight: Floats, epsilon: float, bias: Floats | None = None) -> Any:
    """A norm's record; with a bias it is a layer norm. The caller keeps the arrays."""
    address = 0 if bias is None else bias.ctypes.data
    return np.array((weight.ctypes.data, address, epsilon, bias is not None), NORM)[()]


def exact_norm(x: Floats, weight: Floats, epsilon: float, bias: Floats | None = None) -> npt.NDArray[np.float64]:
    rows = x.astype(np.float64)
    if bias is not None:
        rows = rows - rows.mean(axis=-1, keepdims=True)
    scaled = rows / np.sqrt((rows**2).mean(axis=-1, keepdims=True) + float(np.float32(epsilon))) * weight
    return scaled if bias is None else scaled + bias


@pytest.mark.parametrize(("T", "D"), [(1, 16), (3, 16 * 7), (5, 16 * 11), (17, 576)])
@pytest.mark.parametrize("magnitude", [1e-12, 1e-3, 1.0, 1e4, 1e15])
def test_against_float64(T: int, D: int, magnitude: float) -> None:
    rng = np.random.default_rng(T)
    x = (rng.standard_normal((T, D)) * magnitude).astype(np.float32)
    weight = rng.standard_normal(D).astype(np.float32)
    before, out = x.copy(), np.full((T + 1, D), np.nan, np.float32)
    run(norm, x, record(weight, 1e-5), out[:T], threads=2)
    exact = exact_norm(x, weight, 1e-5)
    assert (np.abs(out[:T] - exact) <= 1e-6 * np.abs(exact)).all()
    assert differing(x, before) == 0, "the input was changed: it is the residual stream"
    assert np.isnan(out[T]).all()


def test_epsilon_lies_inside_the_root() -> None:
    """Where the mean square is far below ε, x / √ε; x / (rms + ε) or x / √mean would be elsewhere."""
    x, weight = np.full((1, 32), 1e-6, np.float32), np.ones(32, np.float32)
    out = np.zeros_like(x)
    run(norm, x, record(weight, 1e-2), out)
    assert np.allclose(out, 1e-5, rtol=1e-6, atol=0)
    x[:] = 0
    run(norm, x, record(weight, 1e-5), out)
    assert not out.any()


def test_same_bits_for_any_threads_and_neighbours() -> None:
    rng = np.random.default_rng(1)
    x, weight = rng.standard_normal((13, 16 * 5)).astype(np.float32), rng.standard_normal(16 * 5).astype(np.float32)
    alone = np.zeros_like(x)
    for t in range(13):
        run(norm, x[t : t + 1], record(weight, 1e-5), alone[t : t + 1])
    for threads in (1, 2, 3):
        out = np.zeros_like(x)
        run(norm, x, record(weight, 1e-5), out, threads=threads)
        assert differing(out, alone) == 0


@pytest.mark.parametrize(("T", "D"), [(1, 16), (3, 16 * 7), (17, 576)])
@pytest.mark.parametrize("offset", [0.0, 3.0, -300.0])
def test_layer_norm_against_float64(T: int, D: int, offset: float) -> None:
    """The mean goes first: rows far from zero lose no more digits than their numbers have."""
    rng = np.random.default_rng(D)
    x = (rng.standard_normal((T, D)) + offset).astype(np.float32)
    weight, bias = rng.standard_normal((2, D)).astype(np.float32)
    before, out = x.copy(), np.full((T + 1, D), np.nan, np.float32)
    run(norm, x, record(weight, 1e-5, bias), out[:T], threads=2)
    exact = exact_norm(x, weight, 1e-5, bias)
    assert np.abs(out[:T] - exact).max() <= 1e-6 * (1 + abs(offset)) * np.abs(exact).max()
    assert differing(x, before) == 0
    assert np.isnan(out[T]).all()


@pytest.mark.parametrize("centred", [False, True])
def test_in_place_gives_the_same_bits(centred: bool) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((5, 16 * 3)).astype(np.float32)
    weight, bias = rng.standard_normal((2, 16 * 3)).astype(np.float32)
    kind, out = record(weight, 1e-5, bias if centred else None), np.zeros_like(x)
    run(norm, x, kind, out)
    run(norm, x, kind, x, threads=2)
    assert differing(x, out) == 0


def test_a_norm_without_a_weight_does_nothing() -> None:
    x = np.arange(32, dtype=np.float32).reshape(1, 32)
    before = x.copy()
    run(norm, x, ABSENT, x, threads=2)
    run(head_norm, x, ABSENT, ABSENT, 1, 0, 32)
    assert differing(x, before) == 0


@pytest.mark.parametrize(("H", "Hkv", "Dh"), [(3, 1, 16), (6, 2, 48), (4, 1, 256)])
def test_each_head_by_itself(H: int, Hkv: int, Dh: int) -> None:
    """Query heads by one weight, key heads by another, values not at all."""
    rng = np.random.default_rng(Dh)
    T, heads = 7, H + 2 * Hkv
    qkv = (rng.standard_normal((T, heads * Dh)) * rng.uniform(0.1, 9, (T, 1))).astype(np.float32)
    query, key = rng.standard_normal((2, Dh)).astype(np.float32)
    split = qkv.reshape(T, heads, Dh)
    exact = np.concatenate(
        [exact_norm(split[:, :H], query, 1e-6), exact_norm(split[:, H : H + Hkv], key, 1e-6), split[:, H + Hkv :]],
        axis=1,
    )
    values = split[:, H + Hkv :].copy()
    run(head_norm, qkv, record(query, 1e-6), record(key, 1e-6), H, Hkv, Dh, threads=3)
    got = qkv.reshape(T, heads, Dh)
    assert (np.abs(got - exact) <= 1e-6 * np.abs(exact)).all()
    assert differing(got[:, H + Hkv :], values) == 0
