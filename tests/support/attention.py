"""Attention's inputs at will, and its definition as a slow loop in float64 over whole sequences.

In: sizes, and for each sequence how long it is and how many of its last tokens are in this step. Out: an
``AttentionCase``: a pool whose unwritten slots hold NaN, the step's batch, and the exact result.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.memory.kv_cache import KVPool, allocate_kv_pool
from cutaway.model.batch import Piece, make_batch
from cutaway.model.config import ModelConfig
from cutaway.ops.cpu import attention, kv_write
from cutaway.ops.cpu.arrays import AttentionScratch, Batch
from cutaway.ops.cpu.attention import MOST_SHARED, PARTIAL_EXTRA, RUN_LENGTH, TILE, padded_rows
from support.configs import plain_config
from support.pools import spoil, stored
from support.teams import run


class Sizes(NamedTuple):
    """Heads and their width, what a page holds, layers, and how scores are made."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_length: int = 16
    data_type: str = "f16"
    num_layers: int = 2
    window: int = 0
    scale: float = 0.0  # 0: 1/√Dh
    cap: float = 0.0

    @property
    def rule(self) -> tuple[int, np.float32, np.float32]:
        """Window, scale and cap, as ``attention`` takes them."""
        return self.window, np.float32(self.scale or 1 / np.sqrt(self.head_dim)), np.float32(self.cap)


class AttentionCase(NamedTuple):
    """Whole sequences' rows, a pool that holds all but the step's keys and values, and the step itself."""

    sizes: Sizes
    rows: list[npt.NDArray[np.float32]]  # of each sequence: [length, (H + 2 Hkv) Dh]
    pool: KVPool
    batch: Batch
    qkv: npt.NDArray[np.float32]  # [T, (H + 2 Hkv) Dh] of the step
    starts: list[int]


def config_of(sizes: Sizes) -> ModelConfig:
    """The least model that has such heads."""
    return plain_config(
        context_length=4096,
        num_layers=sizes.num_layers,
        width=sizes.num_heads * sizes.head_dim,
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
    )


def scratch_for(sizes: Sizes, threads: int, context: int) -> AttentionScratch:
    """Filled with NaN: what is not written first must not be read."""
    rows, partial = padded_rows(RUN_LENGTH * sizes.num_heads // sizes.num_kv_heads), sizes.head_dim + PARTIAL_EXTRA
    depth = (-(-context // TILE)).bit_length() + 1
    shapes = (
        (threads, rows, sizes.head_dim),
        (threads, rows, TILE),
        (threads, depth, rows, partial),
        (MOST_SHARED, rows, partial),
    )
    return AttentionScratch(*(np.full(shape, np.nan, np.float32) for shape in shapes))


def make_case(
    sizes: Sizes,
    lengths: Sequence[int],
    new: Sequence[int],
    seed: int = 0,
    magnitude: float = 1.0,
    step: tuple[int, int] | None = None,
    change: Callable[[npt.NDArray[np.float32]], None] = lambda rows: None,
) -> AttentionCase:
    """Sequence i is ``lengths[i]`` tokens long, of which the last ``new[i]`` are the step's; pages lie in any order.

    With ``step``, the one sequence is cut: its tokens first … end - 1 are the step's, and there are none after them.
    ``change`` may write into a sequence's rows first.
    """
    rng = np.random.default_rng(seed)
    columns = (sizes.num_heads + 2 * sizes.num_kv_heads) * sizes.head_dim
    rows = [(rng.standard_normal((length, columns)) * magnitude).astype(np.float32) for length in lengths]
    for each in rows:
        change(each)
    if step is not None:
        rows = [each[: step[1]] for each in rows]
        lengths, new = [step[1]], [step[1] - step[0]]
    needed = [-(-length // sizes.page_length) for length in lengths]
    order = rng.permutation(sum(needed) + 2)
    tables = [order[sum(needed[:i]) : sum(needed[: i + 1])].tolist() for i in range(len(lengths))]
    pool = allocate_kv_pool(config_of(sizes), len(order), sizes.page_length, sizes.data_type)
    spoil(pool, np.nan)
    heads = (sizes.num_heads, sizes.num_kv_heads, sizes.head_dim)
    starts = [length - count for length, count in zip(lengths, new, strict=True)]
    for sequence, start in enumerate(starts):
        if start:
            before = make_batch([Piece(0, [0] * start, tables[sequence])])
            run(kv_write, rows[sequence][:start], before, pool.record, 1, *heads)
    batch = make_batch([Piece(start, [0] * n, table) for start, n, table in zip(starts, new, tables, strict=True)])
    qkv = np.concatenate([each[start:] for each, start in zip(rows, starts, strict=True)])
    run(kv_write, qkv, batch, pool.record, 1, *heads, threads=2)
    return AttentionCase(sizes, rows, pool, batch, qkv, starts)


def attend(case: AttentionCase, threads: int = 1) -> npt.NDArray[np.float32]:
    """Our attention for the step, all threads: [T, H Dh]."""
    sizes, T = case.sizes, len(case.qkv)
    width = sizes.num_heads * sizes.head_dim
    out = np.full((T + 1, width), np.nan, np.float32)
    scratch = scratch_for(sizes, threads, max(len(each) for each in case.rows))
    heads = (sizes.num_heads, sizes.num_kv_heads, sizes.head_dim)
    run(attention, case.qkv, case.batch, case.pool.record, 1, *heads, *sizes.rule, scratch, out[:T], threads=threads)
    assert np.isnan(out[T]).all(), "wrote a row too many"
    return out[:T]


def exact_attention(case: AttentionCase) -> npt.NDArray[np.float64]:
    """Σ softmax(scale · q·k) v, one query and one head after another, over the sequence's own rows; knows no pages."""
    window, scale, cap = case.sizes.rule
    H, Hkv, Dh = case.sizes.num_heads, case.sizes.num_kv_heads, case.sizes.head_dim
    out = []
    for rows, start in zip(case.rows, case.starts, strict=True):
        heads = rows.reshape(len(rows), H + 2 * Hkv, Dh)
        keys = stored(heads[:, H : H + Hkv], case.sizes.data_type)
        values = stored(heads[:, H + Hkv :], case.sizes.data_type)
        for position in range(start, len(rows)):
            result = np.zeros((H, Dh))
            for head in range(H):
                group = head // (H // Hkv)
                first = max(0, position + 1 - window) if window else 0
                scores = keys[first : position + 1, group] @ heads[position, head].astype(np.float64) * float(scale)
                if cap:
                    scores = float(cap) * np.tanh(scores / float(cap))
                weights = np.exp(scores - scores.max())
                result[head] = weights @ values[first : position + 1, group] / weights.sum()
            out.append(result.ravel())
    return np.array(out)
