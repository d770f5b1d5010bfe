"""What AMX's matrix registers do, and what the kernels make of them: one thread, the least of many repetitions.

In: nothing; it needs a processor that Cutaway uses AMX on. Out: nanoseconds of products of 16 × 16 × 32 in two orders
of instructions, of vectors' multiply-adds with and without an AMX instruction among them, and for some block formats
how many operations a second the kernels reach, from panels and from tiles.

    PYTHONPATH=tests .venv/bin/python benchmarks/matrices.py
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from cutaway.ops.cpu.arrays import Activation
from cutaway.ops.cpu.tiles import ROW_BLOCK, TILE_FORMATS
from cutaway.ops.cpu.tiles.panel import PANELS, room_bytes
from cutaway.ops.kernel_cache import Kernel
from cutaway.ops.simd import (
    LOWERING,
    call_kernel,
    clear_matrix,
    close_matrices,
    fma,
    load,
    load_matrix,
    multiply_matrices,
    open_matrices,
    store_matrix,
    store_rows,
    zeros,
)
from support.activations import quantized
from support.weights import random_matrix

REPETITIONS = 200
ROWS, COLUMNS = 128, 1536


def aligned(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """A copy on a cache line, as the workspace's arrays are."""
    raw = np.zeros(array.nbytes + 64, np.uint8)
    copy = raw[-raw.ctypes.data % 64 :][: array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def least(run: Callable[..., None], *arguments: int, times: int) -> float:
    """Nanoseconds of one of ``times`` turns of a loop."""
    found = []
    run(*arguments, 1)
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        run(*arguments, times)
        found.append(time.perf_counter() - start)
    return min(found) / times * 1e9


@njit(nogil=True)
def _cleared_first(a: int, b: int, out: int, times: int) -> None:
    """Four products a turn: clear all, load, multiply, store."""
    open_matrices(32)
    for _ in range(times):
        clear_matrix(0)
        clear_matrix(1)
        clear_matrix(2)
        clear_matrix(3)
        load_matrix(4, a, 64)
        load_matrix(5, a + 1024, 64)
        load_matrix(6, b, 64)
        load_matrix(7, b + 512, 64)
        multiply_matrices(0, 4, 6)
        multiply_matrices(1, 4, 7)
        multiply_matrices(2, 5, 6)
        multiply_matrices(3, 5, 7)
        store_matrix(0, out, 64)
        store_matrix(1, out + 1024, 64)
        store_matrix(2, out + 2048, 64)
        store_matrix(3, out + 3072, 64)
    close_matrices()


@njit(nogil=True)
def _stored_first(a: int, b: int, out: int, times: int) -> None:
    """The same, each register stored, cleared and multiplied into, as in ``tiles.panel``."""
    open_matrices(32)
    for _ in range(times):
        load_matrix(4, a, 64)
        load_matrix(5, a + 1024, 64)
        load_matrix(6, b, 64)
        load_matrix(7, b + 512, 64)
        store_matrix(0, out, 64)
        clear_matrix(0)
        multiply_matrices(0, 4, 6)
        store_matrix(1, out + 1024, 64)
        clear_matrix(1)
        multiply_matrices(1, 4, 7)
        store_matrix(2, out + 2048, 64)
        clear_matrix(2)
        multiply_matrices(2, 5, 6)
        store_matrix(3, out + 3072, 64)
        clear_matrix(3)
        multiply_matrices(3, 5, 7)
    close_matrices()


@njit(nogil=True)
def _multiply_adds(source: int, groups: int, with_amx: bool, times: int) -> None:
    """16 · groups multiply-adds of 16 lanes a turn, behind one AMX instruction or none."""
    open_matrices(32)
    a, b = zeros(8), zeros(8)
    x = load(source)
    for _ in range(times):
        if with_amx:
            clear_matrix(0)
        for _ in range(groups):
            a = fma(x, a, x)
            b = fma(x, b, x)
    store_rows(source + 64, 64, a)
    store_rows(source + 576, 64, b)
    close_matrices()


@njit(nogil=True)
def _call(kernel: int, arguments: Any, times: int) -> None:
    for _ in range(times):
        call_kernel(kernel, arguments)


def operations(kernel: Kernel, arguments: tuple[Any, ...], rows: int, tiles: int) -> float:
    """Top/s of a kernel that multiplies so many rows with so many tiles; a multiply-add is two operations."""
    turn = least(_call, kernel.address, tuple(np.int64(each) for each in arguments), times=5)  # type: ignore[arg-type]
    return 2 * rows * 16 * tiles * COLUMNS / turn / 1e3


def formats() -> None:
    """The kernels of some formats."""
    for name in ("Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K"):
        layout, matrix = TILE_FORMATS[name], random_matrix(name, 32, COLUMNS, seed=1)
        x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
        activation = Activation(*(aligned(field) for field in quantized(x, spare_rows=0, spare_columns=0)))
        room, out = aligned(np.zeros(room_bytes(COLUMNS), np.int8)), aligned(np.zeros((ROWS, 32), np.float32))
        record, blocks, q = matrix.record[0], COLUMNS // 32, activation.q
        scale, block_sum, scaled_sum = (each.ctypes.data for each in activation[1:])
        expand, panel = layout.panel_kernels
        for half in range(2):
            target = room.ctypes.data + PANELS + half * (len(room) - PANELS) // 2
            _call(expand.address, (record["tiles"] + half * record["tile_bytes"], blocks, target), 1)
        inputs = record["bias"], q.ctypes.data, q.strides[0], scale
        panels = (room.ctypes.data, blocks, *inputs, scaled_sum, activation.scale.strides[0], ROWS)
        tiles = (record["tiles"], blocks, *inputs, block_sum, scaled_sum)
        result = out.ctypes.data, out.strides[0]
        from_panels = operations(panel, (*panels, *result), ROWS, 2)
        from_tiles = operations(layout.multiply_many, (*tiles, *result), ROW_BLOCK, 1)
        print(f"{name}: from panels {from_panels:.2f} Top/s, from tiles {from_tiles:.2f} Top/s")


def main() -> None:
    if LOWERING != "amx":
        raise SystemExit(f"the lowering is {LOWERING!r}: this processor, or this system, has no AMX to measure.")
    operands = aligned(np.random.default_rng(0).integers(-128, 128, 16384, np.int8))
    a, b, out = (operands.ctypes.data + place for place in (0, 4096, 8192))
    for name, run in (("cleared first", _cleared_first), ("stored first", _stored_first)):
        turn = least(run, a, b, out, times=2000)
        print(f"four products of 16 × 16 × 32, {name}: {turn:.1f} ns")
    floats = aligned(np.full(4096, 0.5, np.float32))
    for groups in (4, 16, 64, 256, 1024):
        alone, among = (
            least(_multiply_adds, floats.ctypes.data, groups, amx, times=20_000 // groups) for amx in (False, True)
        )
        print(f"{16 * groups} multiply-adds of 16 lanes: {alone:.0f} ns, behind one AMX instruction {among:.0f} ns")
    formats()


if __name__ == "__main__":
    main()
