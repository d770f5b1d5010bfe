"""The matrix product against float64, in every block format; each shape has another prime."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from cutaway.ops.cpu import matmul
from cutaway.ops.cpu.tiles import TILE_FORMATS
from cutaway.ops.cpu.tiles.layout import TILE_ROWS
from cutaway.ops.cpu.tiles.panel import PANEL_ROWS, room_bytes
from support.activations import quantized, values
from support.bits import differing
from support.teams import run
from support.weights import LAYOUTS, TiledMatrix, payload_bytes, random_matrix, tile

FORMATS = sorted(TILE_FORMATS)
BOUND = 1e-6
"""Relative to Σ |w|·|x|: a few float32 roundings for each of K/32 blocks, which partly cancel."""


def product(
    matrices: list[TiledMatrix], x: npt.NDArray[np.float32], threads: int = 1, spare_rows: int = PANEL_ROWS
) -> npt.NDArray[np.float32]:
    """Our product with the matrices side by side; what lies behind the last tile's columns is checked.

    ``spare_rows`` of the activations' buffer are unused: enough by default to read whole blocks of rows.
    """
    T, width = x.shape[0], sum(len(matrix.values) for matrix in matrices)
    padded = -(-width // TILE_ROWS) * TILE_ROWS
    out = np.full((T + 1, padded + 16), -1.25, np.float32)
    weights = np.concatenate([matrix.record for matrix in matrices])
    activation = quantized(x, spare_rows=spare_rows)
    room = np.zeros((threads, room_bytes(x.shape[1])), np.int8)
    run(matmul, weights, activation, room, out[:T, :width], threads=threads)
    assert (out[T:] == -1.25).all(), "wrote a row too many"
    assert (out[:, padded:] == -1.25).all(), "wrote beyond the last tile"
    return out[:T, :width].copy()


def oracle(
    matrices: list[TiledMatrix], x: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """x @ W.T + bias in float64 on the quantised rows, and Σ |x|·|w| + |bias|, to which rounding is relative."""
    rows = values(quantized(x), *x.shape)
    exact = [rows @ m.values.astype(np.float64).T + m.bias for m in matrices]
    size = [np.abs(rows) @ np.abs(m.values.astype(np.float64)).T + np.abs(m.bias) for m in matrices]
    return np.concatenate(exact, axis=1), np.concatenate(size, axis=1)


def rows_of(T: int, K: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Rows whose blocks differ in magnitude; one block is zero."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((T, K)) * np.repeat(10.0 ** rng.uniform(-2, 2, (T, K // 32)), 32, axis=1)
    x[T // 2, :32] = 0
    return x.astype(np.float32)


@pytest.mark.parametrize("T", [1, 7, 8, 9, 23, 24, 47, 64, 65])
@pytest.mark.parametrize("name", FORMATS)
def test_against_float64(name: str, T: int) -> None:
    columns = 7 * LAYOUTS[name].weights
    matrices = [random_matrix(name, 16 * 5 + 3, columns, seed=11, with_bias=True)]
    x = rows_of(T, columns, seed=T)
    exact, size = oracle(matrices, x)
    assert (np.abs(product(matrices, x) - exact) <= BOUND * size).all()


@pytest.mark.parametrize("order", [(*FORMATS, *FORMATS)[i : i + 3] for i in range(len(FORMATS))])
def test_segments_of_mixed_formats_stand_side_by_side(order: tuple[str, ...]) -> None:
    first, second, third = order
    matrices = [
        random_matrix(first, 16 * 3, 256 * 5, seed=1, with_bias=True),
        random_matrix(second, 16 * 11, 256 * 5, seed=2),
        random_matrix(third, 16 * 2 + 13, 256 * 5, seed=3, with_bias=True),
    ]
    x = rows_of(37, 256 * 5)
    exact, size = oracle(matrices, x)
    assert (np.abs(product(matrices, x) - exact) <= BOUND * size).all()


@pytest.mark.parametrize("name", FORMATS)
def test_extreme_payloads(name: str) -> None:
    """All bytes of weights at both ends, activations at ±127: sums of products at their greatest.

    All blocks are alike, so that their roundings do not cancel.
    """
    columns = 3 * LAYOUTS[name].weights
    for byte, sign in itertools.product((0x00, 0x7F, 0x80, 0xFF), (1, -1)):
        matrix = random_matrix(name, 17, columns, seed=4)
        matrix.raw.reshape(17, 3, -1)[:, :, payload_bytes(name)] = byte
        extreme = [tile(name, matrix.raw, columns, matrix.bias)]
        x = np.full((9, columns), sign * 1.5, np.float32)
        exact, size = oracle(extreme, x)
        assert (np.abs(product(extreme, x) - exact) <= 2 * BOUND * size + 1e-30).all()


@pytest.mark.parametrize("name", FORMATS)
def test_a_row_does_not_depend_on_its_neighbours_or_on_threads(name: str) -> None:
    columns = 3 * LAYOUTS[name].weights
    matrices = [random_matrix(name, 16 * 29 + 5, columns, seed=5, with_bias=True)]
    x = rows_of(67, columns)
    alone = np.concatenate([product(matrices, x[t : t + 1]) for t in range(67)])
    for threads in (1, 2, 3):
        assert differing(product(matrices, x, threads), alone) == 0
    for first, end in ((5, 21), (3, 27), (1, 32), (2, 34), (4, 59)):
        assert differing(product(matrices, x[first:end]), alone[first:end]) == 0
        assert differing(product(matrices, x[first:end], spare_rows=0), alone[first:end]) == 0


@pytest.mark.parametrize("name", FORMATS)
def test_a_single_flipped_bit_of_a_scale_is_seen(name: str) -> None:
    """The control: the bound is tight enough to catch the lowest bit of one float16 scale."""
    columns = LAYOUTS[name].weights
    matrix = random_matrix(name, 19, columns, seed=6)
    x = rows_of(3, columns, seed=7)
    exact, size = oracle([matrix], x)
    at = LAYOUTS[name].halves[0]
    d = matrix.raw[:, at : at + 2].copy().view(np.float16)[:, 0]
    row = int(np.abs(d.astype(np.float32)).argmax())  # not one where the minimum is everything
    matrix.raw[row, at : at + 2].view(np.uint16)[:] ^= 1
    error = np.abs(product([tile(name, matrix.raw, columns, matrix.bias)], x) - exact)
    assert (error > BOUND * size).any(axis=0).nonzero()[0].tolist() == [row]
