"""Words for matrix registers against NumPy: products are exact, memory is what strides say, threads don't meet."""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest

from cutaway.ops import simd
from support.bits import differing

pytestmark = pytest.mark.skipif(
    simd.LOWERING != "amx",
    reason="the words need AMX (Intel, since Sapphire Rapids) and the system's permission: see cutaway doctor",
)

DEPTHS = (16, 32, 64)
ROWS = 16
FILL = 99

Array = npt.NDArray[Any]


def interleaved(weights: Array) -> Array:
    """Columns n [16, depth] as B has them, [depth / 4, 64]: by the definition of the module."""
    depth = weights.shape[1]
    b = np.zeros((depth // 4, 64), np.int8)
    for group in range(depth // 4):
        for n in range(ROWS):
            b[group, 4 * n : 4 * n + 4] = weights[n, 4 * group : 4 * group + 4]
    return b


def spread(rows: Array, stride: int) -> Array:
    """The rows in memory, ``stride`` bytes apart, with other bytes between them."""
    flat = np.full((len(rows), stride), FILL, np.int8)
    flat[:, : rows[0].nbytes] = rows.view(np.int8).reshape(len(rows), -1)
    return flat


def all_products(depth: int) -> Callable[..., None]:
    """Every register of C with every pair of A and B, four products at a time: out [4, 4, 16, 16] int32."""

    @numba.njit
    def load_c(c: int, stride: int) -> None:
        simd.load_matrix(0, c, stride)
        simd.load_matrix(1, c + 16 * stride, stride)
        simd.load_matrix(2, c + 32 * stride, stride)
        simd.load_matrix(3, c + 48 * stride, stride)

    @numba.njit
    def store_c(out: int) -> None:
        simd.store_matrix(0, out, 64)
        simd.store_matrix(1, out + 1024, 64)
        simd.store_matrix(2, out + 2048, 64)
        simd.store_matrix(3, out + 3072, 64)

    @numba.njit
    def run(a: int, a_stride: int, b: int, b_stride: int, c: int, c_stride: int, out: int) -> None:
        simd.open_matrices(depth)
        simd.load_matrix(4, a, a_stride)
        simd.load_matrix(5, a + 16 * a_stride, a_stride)
        simd.load_matrix(6, b, b_stride)
        simd.load_matrix(7, b + depth // 4 * b_stride, b_stride)
        load_c(c, c_stride)
        simd.multiply_matrices(0, 4, 6)
        simd.multiply_matrices(1, 4, 7)
        simd.multiply_matrices(2, 5, 6)
        simd.multiply_matrices(3, 5, 7)
        store_c(out)
        load_c(c, c_stride)
        simd.multiply_matrices(1, 4, 6)
        simd.multiply_matrices(2, 4, 7)
        simd.multiply_matrices(3, 5, 6)
        simd.multiply_matrices(0, 5, 7)
        store_c(out + 4096)
        load_c(c, c_stride)
        simd.multiply_matrices(2, 4, 6)
        simd.multiply_matrices(3, 4, 7)
        simd.multiply_matrices(0, 5, 6)
        simd.multiply_matrices(1, 5, 7)
        store_c(out + 8192)
        load_c(c, c_stride)
        simd.multiply_matrices(3, 4, 6)
        simd.multiply_matrices(0, 4, 7)
        simd.multiply_matrices(1, 5, 6)
        simd.multiply_matrices(2, 5, 7)
        store_c(out + 12288)
        simd.close_matrices()

    return run


@pytest.mark.parametrize("depth", DEPTHS)
def test_products_are_exact(depth: int) -> None:
    """Of signed bytes, all of them and the extremes alone; sums wrap as int32."""
    run = all_products(depth)
    rng = np.random.default_rng(depth)
    for least, most in ((-128, 127), (-128, -128), (127, 127), (-128, -127), (0, 0), (-1, 1)):
        a = rng.integers(least, most + 1, (2, ROWS, depth)).astype(np.int8)
        weights = rng.integers(-128, 128, (2, ROWS, depth)).astype(np.int8)
        if least == most:
            weights[0] = -128  # the largest sums of both signs
        c = rng.integers(-(2**31), 2**31, (4, ROWS, ROWS)).astype(np.int32)
        c[:, 0] = (2**31 - 1, -(2**31)) * 8
        in_a = spread(a.reshape(2 * ROWS, depth), depth + 13)
        in_b = spread(np.concatenate([interleaved(each) for each in weights]), 64 + 29)
        in_c = spread(c.reshape(4 * ROWS, ROWS), 64 + 7)
        out = np.zeros((4, 4, ROWS, ROWS), np.int32)
        run(
            in_a.ctypes.data,
            in_a.strides[0],
            in_b.ctypes.data,
            in_b.strides[0],
            in_c.ctypes.data,
            in_c.strides[0],
            out.ctypes.data,
        )
        for turn in range(4):
            for number, (i, j) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
                register = (number + turn) % 4
                product = a[i].astype(np.int64) @ weights[j].astype(np.int64).T
                expected = (c[register] + product).astype(np.int32)
                assert differing(out[turn, register], expected) == 0, (turn, register)


def round_trip(depth: int, register: int) -> Callable[[int, int, int, int], None]:
    @numba.njit
    def run(source: int, stride: int, out: int, out_stride: int) -> None:
        simd.open_matrices(depth)
        simd.load_matrix(register, source, stride)
        simd.store_matrix(register, out, out_stride)
        simd.clear_matrix(register)
        simd.store_matrix(register, out + 17 * out_stride, out_stride)
        simd.close_matrices()

    return run


@pytest.mark.parametrize(
    ("depth", "register"), [(32, register) for register in range(8)] + [(16, 4), (16, 7), (64, 5), (64, 6)]
)
def test_a_register_keeps_its_rows_and_clears(depth: int, register: int) -> None:
    """No byte between the rows is written, none behind the last; other strides in than out."""
    rows, width = (16, 64) if register < 4 else (16, depth) if register < 6 else (depth // 4, 64)
    source = np.random.default_rng(register).integers(-128, 128, (17, 83)).astype(np.int8)
    out = np.full((34, 71), FILL, np.int8)
    expected = out.copy()
    expected[:rows, :width] = source[:rows, :width]
    expected[17 : 17 + rows, :width] = 0
    round_trip(depth, register)(source.ctypes.data, 83, out.ctypes.data, 71)
    assert np.array_equal(out, expected)


def test_opening_clears_all_registers() -> None:
    """Those that this thread has open, too; and closing forgets what they held."""

    @numba.njit
    def run(source: int, out: int, close: bool) -> None:
        simd.open_matrices(32)
        simd.load_matrix(0, source, 64)
        simd.load_matrix(3, source, 64)
        simd.load_matrix(7, source, 64)
        if close:
            simd.close_matrices()
        simd.open_matrices(64)
        simd.store_matrix(0, out, 64)
        simd.store_matrix(3, out + 1024, 64)
        simd.store_matrix(7, out + 2048, 64)
        simd.close_matrices()

    source = np.full(1024, 7, np.int8)
    for close in (False, True):
        out = np.full(3072, FILL, np.int8)
        run(source.ctypes.data, out.ctypes.data, close)
        assert not out.any()


@pytest.mark.parametrize("depth", [0, 8, 24, 65, 128])
def test_other_depths_are_not_compiled(depth: int) -> None:
    @numba.njit
    def run() -> None:
        simd.open_matrices(depth)

    with pytest.raises(numba.TypingError):
        run()


def test_registers_must_be_known_when_compiled() -> None:
    @numba.njit
    def run(register: int) -> None:
        simd.clear_matrix(register)

    with pytest.raises(numba.TypingError):
        run(0)


def in_pieces(depth: int) -> tuple[Callable[..., None], Callable[[], None], Callable[[int], None]]:
    """A product in three calls, between which this thread may be stopped: open, multiply, store and close."""

    @numba.njit(nogil=True)
    def begin(a: int, b: int) -> None:
        simd.open_matrices(depth)
        simd.load_matrix(4, a, depth)
        simd.load_matrix(7, b, 64)

    @numba.njit(nogil=True)
    def multiply() -> None:
        simd.multiply_matrices(2, 4, 7)

    @numba.njit(nogil=True)
    def end(out: int) -> None:
        simd.store_matrix(2, out, 64)
        simd.close_matrices()

    return begin, multiply, end


def test_every_thread_has_registers_of_its_own() -> None:
    """More threads than processors, with other shapes and numbers each, that take turns after every call."""
    count, rounds = max(6, 2 * (os.cpu_count() or 1) + 1), 40
    pieces = {depth: in_pieces(depth) for depth in DEPTHS}
    turn = threading.Barrier(count)
    wrong: list[tuple[int, int]] = []
    finished: list[int] = []

    def work(number: int) -> None:
        depth = DEPTHS[number % len(DEPTHS)]
        begin, multiply, end = pieces[depth]
        rng = np.random.default_rng(number)
        for each in range(rounds):
            a = rng.integers(-128, 128, (ROWS, depth)).astype(np.int8)
            weights = rng.integers(-128, 128, (ROWS, depth)).astype(np.int8)
            b, out = interleaved(weights), np.zeros((ROWS, ROWS), np.int32)
            begin(a.ctypes.data, b.ctypes.data)
            for _ in range(3):
                turn.wait(60)
                multiply()
                time.sleep(0)
            end(out.ctypes.data)
            if differing(out, 3 * (a.astype(np.int32) @ weights.astype(np.int32).T)):
                wrong.append((number, each))
        finished.append(number)

    for each in pieces.values():  # compiled before threads meet
        scratch = np.zeros(1024, np.int8)
        each[0](scratch.ctypes.data, scratch.ctypes.data)
        each[1]()
        each[2](scratch.ctypes.data)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(finished) == list(range(count))
    assert wrong == []


def test_signal_handlers_leave_the_registers_alone() -> None:
    """The system saves them on the stack of whoever is interrupted: a product goes on where it was."""
    begin, multiply, end = in_pieces(64)
    a, b = np.full((ROWS, 64), -128, np.int8), np.full((16, 64), -128, np.int8)
    out = np.zeros((ROWS, ROWS), np.int32)
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        begin(a.ctypes.data, b.ctypes.data)
        for _ in range(5):
            os.kill(os.getpid(), signal.SIGUSR1)
            multiply()
        end(out.ctypes.data)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [signal.SIGUSR1] * 5
    assert (out == 5 * 64 * 128 * 128).all()
