"""Products of many rows with AMX: two tiles of weights, expanded into panels of signed bytes, times 32 rows at once.

In: panels that a format's ``expand`` kernel has written, rows of quantised activations. Out: their products, the same
bits as from the format's other kernels, since sums of bytes are exact and all roundings come in the same order. In a
panel, a tile's weights are steps of ``depth`` columns, 32 or (where a scale is for 16 weights) 16:

    depth/4 groups of 64 bytes: | row 0: 4 bytes | … | row 15: 4 bytes |   columns 4g … 4g + 3 of each row, signed
    scales:                     | row 0: float32 | … | row 15: float32 |
    minima, if the format has them, likewise

    rows of activations          panel 0         panel 1
    0 … 15:   A = register 4  ×  B = 6, C = 0    B = 7, C = 1
    16 … 31:  A = register 5  ×  B = 6, C = 2    B = 7, C = 3

Each step's products leave their registers through memory, where the scales meet them. A register must not be cleared
while its product is under way, so a step stores what the step before it multiplied; ``STEPS`` of them are scaled at a
time, with totals in vector registers.
"""

from typing import Any, Final

from cutaway.ops.cpu.arrays import GROUP_STRIDE, SCALE_STRIDE
from cutaway.ops.cpu.tiles.layout import TILE_ROWS
from cutaway.ops.kernel_cache import Kernel, inlined, kernel
from cutaway.ops.simd import (
    LOWERING,
    add,
    clear_matrix,
    close_matrices,
    fma,
    load,
    load_matrix,
    load_rows,
    load_rows_int,
    mul,
    multiply_matrices,
    open_matrices,
    prefetch,
    splat_rows,
    store,
    store_matrix,
    store_rows,
    to_float,
    zeros,
)
from cutaway.ops.simd.registers import MATRIX_ROWS, REGISTER_BYTES, ROW_BYTES

PART: Final = 8  # rows of a register that are scaled at once
PANEL_ROWS: Final = 2 * MATRIX_ROWS  # rows of activations that are multiplied at once
STEPS: Final = 4  # steps whose products wait to be scaled: 16 KB, which stay in L1
PANEL_SCALES: Final = 32 * TILE_ROWS  # offset in a step of 32 columns
PANEL_MINIMA: Final = PANEL_SCALES + 4 * TILE_ROWS
PANEL_HALF_SCALES: Final = 16 * TILE_ROWS  # … in a step of 16, which has no minima


def step_bytes(depth: int, has_minima: bool) -> int:
    """Bytes of a step in a panel: ``depth`` columns of 16 rows, their scales, and their minima if there are any."""
    return TILE_ROWS * (depth + 4 * (1 + has_minima))


# A thread's room: the products of STEPS steps, then the totals, 4 registers each, then the two panels.
PRODUCTS: Final = STEPS * 4 * REGISTER_BYTES
PANELS: Final = PRODUCTS + 4 * REGISTER_BYTES
PANEL_BLOCK: Final = max(step_bytes(32, True), 2 * step_bytes(16, False))  # bytes of 32 columns in any kind of panel


def room_bytes(columns: int) -> int:
    """Bytes of a thread's room for matrices of so many columns; 0 where there are no matrix registers."""
    return PANELS + 2 * columns // 32 * PANEL_BLOCK if LOWERING == "amx" else 0


@inlined
def _load_step(panel: int, second: int, q: int, q_stride: int) -> None:
    """The operands of one step: 32 rows of activations at ``q``, and the step's columns in both panels."""
    load_matrix(4, q, q_stride)
    load_matrix(5, q + MATRIX_ROWS * q_stride, q_stride)
    load_matrix(6, panel, ROW_BYTES)
    load_matrix(7, second, ROW_BYTES)


@inlined
def _multiply_steps(
    panel: int, second: int, step: int, depth: int, count: int, q: int, q_stride: int, out: int
) -> None:
    """The products of ``count`` steps, ``step`` bytes apart in both panels, with 32 rows of activations at ``q``.

    out: [count, 4, 16, 16] int32, the registers 0 … 3 after each step.
    """
    _load_step(panel, second, q, q_stride)
    clear_matrix(0)
    clear_matrix(1)
    clear_matrix(2)
    clear_matrix(3)
    multiply_matrices(0, 4, 6)
    multiply_matrices(1, 4, 7)
    multiply_matrices(2, 5, 6)
    multiply_matrices(3, 5, 7)
    for number in range(1, count):
        _load_step(panel + number * step, second + number * step, q + number * depth, q_stride)
        store_matrix(0, out, ROW_BYTES)
        clear_matrix(0)
        multiply_matrices(0, 4, 6)
        store_matrix(1, out + REGISTER_BYTES, ROW_BYTES)
        clear_matrix(1)
        multiply_matrices(1, 4, 7)
        store_matrix(2, out + 2 * REGISTER_BYTES, ROW_BYTES)
        clear_matrix(2)
        multiply_matrices(2, 5, 6)
        store_matrix(3, out + 3 * REGISTER_BYTES, ROW_BYTES)
        clear_matrix(3)
        multiply_matrices(3, 5, 7)
        out += 4 * REGISTER_BYTES
    store_matrix(0, out, ROW_BYTES)
    store_matrix(1, out + REGISTER_BYTES, ROW_BYTES)
    store_matrix(2, out + 2 * REGISTER_BYTES, ROW_BYTES)
    store_matrix(3, out + 3 * REGISTER_BYTES, ROW_BYTES)


@inlined
def _scale_step(
    total: Any, number: int, panel: int, step: int, depth: int, minima: int, products: int, scale: int, scaled_sum: int
) -> Any:
    """total [PART, 16] + the products of the step with this number · scales, for PART rows of activations."""
    scales, skip = panel + number * step + TILE_ROWS * depth, number * depth // 32 * GROUP_STRIDE
    if minima:
        total = fma(load(scales + 64), splat_rows(scaled_sum + skip, SCALE_STRIDE, PART), total)
    own = load_rows_int(products + number * 4 * REGISTER_BYTES, ROW_BYTES, PART)
    return fma(mul(to_float(own), splat_rows(scale + skip, SCALE_STRIDE, PART)), load(scales), total)


@inlined
def _scale_steps(
    panel: int, step: int, depth: int, minima: int, count: int, products: int, scale: int, scaled_sum: int, totals: int
) -> None:
    """totals [PART, 16] += products · scales, step by step, for PART of the rows that one register held."""
    total = load_rows(totals, ROW_BYTES, PART)
    if count == STEPS:  # without a loop: all addresses are constants apart
        total = _scale_step(total, 0, panel, step, depth, minima, products, scale, scaled_sum)
        total = _scale_step(total, 1, panel, step, depth, minima, products, scale, scaled_sum)
        total = _scale_step(total, 2, panel, step, depth, minima, products, scale, scaled_sum)
        total = _scale_step(total, 3, panel, step, depth, minima, products, scale, scaled_sum)
    else:
        for number in range(count):
            total = _scale_step(total, number, panel, step, depth, minima, products, scale, scaled_sum)
    store_rows(totals, ROW_BYTES, total)


def _multiply(depth: int, has_minima: bool) -> Kernel:
    """The kernel for panels of one kind: steps of ``depth`` columns, with minima or without.

    multiply_panel(room, num_blocks, bias, q, q_stride, scale, scaled_sum, group_bytes, rows, out, out_stride)
        for rows r of activations and the 32 rows n of two tiles:  out[r, n] = bias[n] + Σ_k w[n, k] · x[r, k]

    All arguments are int64: addresses, counts, strides in bytes. ``rows`` may be no multiple of 32; up to the next one
    activations are read then, and come to nothing. The first row is the first of a group of 16; the scales of groups
    are ``group_bytes`` apart. ``room``: see ``PANELS``.
    """
    minima, step = int(has_minima), step_bytes(depth, has_minima)

    def multiply_panel(
        room: int,
        num_blocks: int,
        bias: int,
        q: int,
        q_stride: int,
        scale: int,
        scaled_sum: int,
        group_bytes: int,
        rows: int,
        out: int,
        out_stride: int,
    ) -> None:
        totals, num_steps = room + PRODUCTS, num_blocks * 32 // depth
        open_matrices(depth)
        for first in range(0, rows, PANEL_ROWS):
            for register in range(4):
                store_rows(
                    totals + register * REGISTER_BYTES,
                    ROW_BYTES,
                    add(zeros(MATRIX_ROWS), load(bias + register % 2 * 64)),
                )
            for row in range(first, min(rows, first + PANEL_ROWS)):
                prefetch(out + row * out_stride)
                prefetch(out + row * out_stride + 64)
            for start in range(0, num_steps, STEPS):
                count, group = min(STEPS, num_steps - start), start * depth // 32 * GROUP_STRIDE
                panel = room + PANELS + start * step
                second = panel + num_blocks * PANEL_BLOCK
                _multiply_steps(panel, second, step, depth, count, q + start * depth, q_stride, room)
                for part in range(4 * MATRIX_ROWS // PART):
                    register, row = part * PART // MATRIX_ROWS, part * PART % MATRIX_ROWS
                    scales = register // 2 * group_bytes + group + row * SCALE_STRIDE
                    _scale_steps(
                        second if register % 2 else panel,
                        step,
                        depth,
                        minima,
                        count,
                        room + part * PART * ROW_BYTES,
                        scale + scales,
                        scaled_sum + scales,
                        totals + part * PART * ROW_BYTES,
                    )
            for row in range(min(PANEL_ROWS, rows - first)):
                source, target = (
                    totals + row // MATRIX_ROWS * 2 * REGISTER_BYTES + row % MATRIX_ROWS * ROW_BYTES,
                    out + (first + row) * out_stride,
                )
                store(target, load(source))
                store(target + 64, load(source + REGISTER_BYTES))
            q += PANEL_ROWS * q_stride
            scale += 2 * group_bytes
            scaled_sum += 2 * group_bytes
        close_matrices()

    multiply_panel.__qualname__ = f"multiply_panel_{depth}_{minima}"
    return kernel(multiply_panel)


MULTIPLY: Final = _multiply(32, False)
MULTIPLY_WITH_MINIMA: Final = _multiply(32, True)
MULTIPLY_HALVES: Final = _multiply(16, False)
