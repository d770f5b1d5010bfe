"""Quantised activations, made in NumPy apart from the operation that makes them.

In: rows of float32. Out: an ``Activation`` whose arrays have more rows and columns than are used.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from cutaway.ops.cpu.arrays import ROW_GROUP, Activation


def by_row(grouped: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy [16 A, K/32] of what an activation keeps for each block, [A, K/32, 16]."""
    groups, blocks, rows = grouped.shape
    return grouped.transpose(0, 2, 1).reshape(groups * rows, blocks)


def _put(grouped: npt.NDArray[Any], rows: npt.NDArray[Any]) -> None:
    """Write rows [T, blocks] into [A, K/32, 16], with loops: apart from ``by_row``."""
    for t, row in enumerate(rows):
        grouped[t // ROW_GROUP, : len(row), t % ROW_GROUP] = row


def empty_activation(rows: int, columns: int) -> Activation:
    """Buffers filled with what must not be read."""
    blocks = (-(-rows // ROW_GROUP), columns // 32, ROW_GROUP)
    return Activation(
        q=np.full((rows, columns), 99, np.int8),
        scale=np.full(blocks, np.nan, np.float32),
        block_sum=np.full(blocks, 1 << 30, np.int32),
        scaled_sum=np.full(blocks, np.nan, np.float32),
    )


def quantized(x: npt.NDArray[np.float32], spare_rows: int = 1, spare_columns: int = 32) -> Activation:
    """x [T, K] in int8, blocks of 32, in buffers [T + spare, K + spare]."""
    T, K = x.shape
    activation = empty_activation(T + spare_rows, K + spare_columns)
    blocks = x.reshape(T, K // 32, 32)
    scale = np.abs(blocks).max(axis=2) / np.float32(127)
    divisor = np.where(scale == 0, 1, scale)[..., None]
    q = np.clip(np.rint(blocks / divisor), -127, 127).astype(np.int8)
    activation.q[:T, :K] = q.reshape(T, K)
    total = q.sum(axis=2, dtype=np.int32)
    _put(activation.scale, scale)
    _put(activation.block_sum, total)
    _put(activation.scaled_sum, scale * total.astype(np.float32))
    return activation


def values(activation: Activation, T: int, K: int) -> npt.NDArray[np.float64]:
    """scale · q [T, K] in float64."""
    q: npt.NDArray[Any] = activation.q[:T, :K].astype(np.float64)
    return q * np.repeat(by_row(activation.scale)[:T, : K // 32].astype(np.float64), 32, axis=1)
