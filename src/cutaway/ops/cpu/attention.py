"""Attention, one algorithm for decoding, prefill and recomputation: tiles on an absolute grid, merged by a fixed tree.

In: rotated queries, the KV cache, the batch. Out: for each token and head Σ softmax(q·k / √Dh) · v over the positions
up to its own.

The context of a query is cut at multiples of 64 positions. Each tile gives a partial (m, l, o): the greatest score,
the sum of e^(score - m), and the sum of e^(score - m) · v, each in one fixed order. Partials are merged in the binary
tree over tile numbers,

    merge (m₁, l₁, o₁), (m₂, l₂, o₂):   m = max(m₁, m₂),  l = l₁·e^(m₁-m) + l₂·e^(m₂-m),  o likewise

which is a function of the position alone. So the result has the same bits whoever computes it with whatever
neighbours, and a long context can be split over the team at any subtree. (Online softmax: Milakov and Gimelshein 2018;
split: Dao et al. 2023.)

A work item is a run of queries × the query heads that share a KV head: its rows read each key and value once.
"""

import math
from typing import Final

import numpy as np
from numba.extending import register_jitable

from cutaway.ops.cpu.arrays import AttentionScratch, Batch, Floats
from cutaway.ops.cpu.kv_tiles import QUERY_BLOCK, SUBTILE, KVCache
from cutaway.ops.cpu.kv_write import subtile_index
from cutaway.ops.cpu.math import exp
from cutaway.ops.cpu.team import Team, barrier, take
from cutaway.ops.kernel_cache import jit
from cutaway.ops.simd import (
    add,
    div,
    first_lanes,
    fma,
    lane_max,
    lane_sum,
    load,
    maximum,
    mul,
    splat,
    store,
    sub,
    zeros,
)
from cutaway.ops.simd.processor import call_kernel

TILE: Final = 64  # positions
SUBTILES: Final = TILE // SUBTILE
RUN_LENGTH: Final = 8  # queries of a work item; divides TILE, so that a run never crosses a tile's border
PARTIAL_EXTRA: Final = 32  # floats behind a partial's o: m in 16 lanes, l in 16 lanes
MOST_SHARED: Final = 64  # partials of chunks that the team can share
BALANCE: Final = 4  # work items a member below which contexts are split

_NEVER: Final = np.float32(-1e30)  # the score of a position that is not attended
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


@register_jitable
def padded_rows(rows: int) -> int:
    """Rows of an item as the kernels want them: one, or a multiple of QUERY_BLOCK."""
    return rows if rows == 1 else -(-rows // QUERY_BLOCK) * QUERY_BLOCK


@jit
def _scores(kv: KVCache, keys: int, queries: int, rows: int, head_dim: int, scores: int) -> None:
    """scores[r, 0:16] for one sub-tile of keys."""
    kernel, step = (kv.score_one, 1) if rows == 1 else (kv.score_many, QUERY_BLOCK)
    for r in range(0, rows, step):
        call_kernel(
            kernel,
            (
                keys,
                queries + 4 * head_dim * r,
                4 * head_dim,
                head_dim,
                scores + 4 * TILE * r,
                4 * TILE,
                SUBTILE * kv.element_bytes,
            ),
        )


@jit
def _softmax_row(scores: int, num_valid: int, partial_max: int, partial_sum: int) -> None:
    """scores[0:64] become e^(score - m), 0 beyond ``num_valid``; m and l are written in all lanes."""
    greatest = splat(_NEVER)
    for j in range(SUBTILES):
        greatest = maximum(greatest, first_lanes(load(scores + 64 * j), num_valid - SUBTILE * j, _NEVER))
    m = splat(lane_max(greatest))
    total = zeros(1)
    for j in range(SUBTILES):
        e = first_lanes(exp(sub(load(scores + 64 * j), m)), num_valid - SUBTILE * j, _ZERO)
        store(scores + 64 * j, e)
        total = add(total, e)
    store(partial_max, m)
    store(partial_sum, splat(lane_sum(total)))


@jit
def _mix_rows(
    kv: KVCache,
    kernel: int,
    values: int,
    begin: int,
    end: int,
    weights: int,
    head_dim: int,
    out: int,
    out_stride: int,
) -> None:
    """out += weights[begin:end] @ values[begin:end] for tokens of one sub-tile: nothing beyond ``end`` is ever read."""
    if begin < end:
        call_kernel(
            kernel,
            (
                values + begin * head_dim * kv.element_bytes,
                end - begin,
                weights + 4 * begin,
                4 * TILE,
                head_dim,
                out,
                out_stride,
            ),
        )


@jit
def _merge(left: int, right: int, rows: int, head_dim: int) -> None:
    """left = merge(left, right), both partials [rows, Dh + 32]."""
    stride = 4 * (head_dim + PARTIAL_EXTRA)
    for r in range(rows):
        a, b = left + r * stride, right + r * stride
        m_a, m_b = load(a + 4 * head_dim), load(b + 4 * head_dim)
        m = maximum(m_a, m_b)
        w_a, w_b = exp(sub(m_a, m)), exp(sub(m_b, m))
        l_a, l_b = a + 4 * head_dim + 64, b + 4 * head_dim + 64
        store(a + 4 * head_dim, m)
        store(l_a, fma(load(l_a), w_a, mul(load(l_b), w_b)))
        for i in range(0, 4 * head_dim, 64):
            store(a + i, fma(load(a + i), w_a, mul(load(b + i), w_b)))


@jit
def _copy_partial(source: int, target: int, rows: int, head_dim: int) -> None:
    """target = source, partials [rows, Dh + 32]."""
    for i in range(0, 4 * rows * (head_dim + PARTIAL_EXTRA), 64):
        store(target + i, load(source + i))


@jit
def _push(stack: int, top: int, number: int, slot_bytes: int, rows: int, head_dim: int) -> int:
    """The partial of leaf ``number`` lies at the top of the stack: merge all subtrees that it completes. Returns the
    new top.
    """
    while number & 1:
        _merge(stack + (top - 1) * slot_bytes, stack + top * slot_bytes, rows, head_dim)
        top -= 1
        number >>= 1
    return top + 1


@jit
def _collapse(stack: int, top: int, slot_bytes: int, rows: int, head_dim: int) -> None:
    """Merge what is left on the stack, right to left, into its first slot."""
    while top > 1:
        _merge(stack + (top - 2) * slot_bytes, stack + (top - 1) * slot_bytes, rows, head_dim)
        top -= 1


@jit
def _attend_tile(
    batch: Batch,
    kv: KVCache,
    base: int,
    sequence: int,
    tile: int,
    position: int,
    num_queries: int,
    group: int,
    head_dim: int,
    queries: int,
    scores: int,
    partial: int,
) -> None:
    """The partial of one tile for a run of queries from ``position``; rows are queries × heads of the group."""
    rows = padded_rows(num_queries * group)
    stride = 4 * (head_dim + PARTIAL_EXTRA)
    first_position = tile * TILE
    most_valid = min(TILE, position + num_queries - first_position)
    for j in range((most_valid + SUBTILE - 1) // SUBTILE):
        keys = kv.keys + base + subtile_index(batch, kv, sequence, SUBTILES * tile + j) * kv.subtile_bytes
        _scores(kv, keys, queries, rows, head_dim, scores + 64 * j)
    for r in range(rows):
        query = min(num_queries - 1, r // group)  # rows that only fill up the last block do as the last query does
        num_valid = min(TILE, position + query + 1 - first_position)
        o = partial + r * stride
        _softmax_row(scores + 4 * TILE * r, num_valid, o + 4 * head_dim, o + 4 * head_dim + 64)
        for i in range(0, 4 * head_dim, 64):
            store(o + i, zeros(1))
    kernel, step = (kv.mix_one, 1) if rows == 1 else (kv.mix_many, QUERY_BLOCK)
    for j in range((most_valid + SUBTILE - 1) // SUBTILE):
        values = kv.values + base + subtile_index(batch, kv, sequence, SUBTILES * tile + j) * kv.subtile_bytes
        for r in range(0, rows, step):
            # All rows of a block share the tokens that the first may attend; what later queries may attend beyond
            # comes after, row by row: a weight of 0 is not enough, since 0 · NaN would leak from a slot that nobody
            # wrote yet.
            shared = min(
                SUBTILE,
                max(0, position + min(num_queries - 1, r // group) + 1 - first_position - SUBTILE * j),
            )
            weights = scores + 4 * TILE * r + 64 * j
            _mix_rows(kv, kernel, values, 0, shared, weights, head_dim, partial + r * stride, stride)
            for extra in range(r + 1, r + step):
                valid = position + min(num_queries - 1, extra // group) + 1 - first_position - SUBTILE * j
                weights = scores + 4 * TILE * extra + 64 * j
                _mix_rows(
                    kv,
                    kv.mix_one,
                    values,
                    shared,
                    min(SUBTILE, valid),
                    weights,
                    head_dim,
                    partial + extra * stride,
                    stride,
                )


@jit
def _gather_queries(
    qkv: Floats, first: int, num_queries: int, head: int, group: int, head_dim: int, queries: Floats
) -> None:
    """queries[r] = the run's query rows of one KV head, times 1/√Dh; zeros where rows only fill up the last block."""
    scale = np.float32(1.0 / math.sqrt(head_dim))
    rows = num_queries * group
    for r in range(rows):
        column = (head * group + r % group) * head_dim
        for i in range(head_dim):
            queries[r, i] = qkv[first + r // group, column + i] * scale
    for r in range(rows, padded_rows(rows)):
        for i in range(head_dim):
            queries[r, i] = _ZERO


@jit
def _write_out(partial: int, first: int, num_queries: int, head: int, group: int, head_dim: int, out: Floats) -> None:
    """out = o / l."""
    stride = 4 * (head_dim + PARTIAL_EXTRA)
    for r in range(num_queries * group):
        source = partial + r * stride
        target = out.ctypes.data + (first + r // group) * out.strides[0] + 4 * head_dim * (head * group + r % group)
        reciprocal = div(splat(_ONE), load(source + 4 * head_dim + 64))
        for i in range(0, 4 * head_dim, 64):
            store(target + i, mul(load(source + i), reciprocal))


@jit
def _plan_chunks(team: Team, batch: Batch, num_kv_heads: int) -> tuple[int, int]:
    """(tiles of a chunk, chunks of the longest context). Where there are few work items, contexts are cut into chunks,
    aligned subtrees of tiles, small enough to keep the team busy; else a chunk is a whole context.
    """
    items = batch.runs.shape[0] * num_kv_heads
    most_tiles = 1
    for run in range(batch.runs.shape[0]):
        last = batch.positions[batch.runs[run, 0]] + batch.runs[run, 1] - 1
        most_tiles = max(most_tiles, last // TILE + 1)
    if items >= BALANCE * team.size or items * 2 > MOST_SHARED:
        return most_tiles, 1
    chunk = 1
    while items * ((most_tiles + chunk - 1) // chunk) > MOST_SHARED:
        chunk *= 2
    return chunk, (most_tiles + chunk - 1) // chunk


@jit
def _merge_chunks(
    team: Team,
    batch: Batch,
    num_kv_heads: int,
    group: int,
    head_dim: int,
    chunk: int,
    num_chunks: int,
    scratch: AttentionScratch,
    out: Floats,
) -> None:
    """Each context's chunks, merged in the tree that their tiles would have been merged in one by one."""
    slot_bytes = scratch.stack.strides[1]
    stack = scratch.stack.ctypes.data + team.rank * scratch.stack.strides[0]
    num_items = batch.runs.shape[0] * num_kv_heads
    item = take(team, num_items)
    while item >= 0:
        run, head = item // num_kv_heads, item % num_kv_heads
        first, num_queries = batch.runs[run, 0], batch.runs[run, 1]
        num_tiles = (batch.positions[first] + num_queries - 1) // TILE + 1
        rows = num_queries * group
        top = 0
        for part in range((num_tiles + chunk - 1) // chunk):
            source = scratch.shared.ctypes.data + (item * num_chunks + part) * slot_bytes
            _copy_partial(source, stack + top * slot_bytes, rows, head_dim)
            top = _push(stack, top, part, slot_bytes, rows, head_dim)
        _collapse(stack, top, slot_bytes, rows, head_dim)
        _write_out(stack, first, num_queries, head, group, head_dim, out)
        item = take(team, num_items)
    barrier(team)


@jit
def attention(
    team: Team,
    qkv: Floats,
    batch: Batch,
    kv: KVCache,
    layer: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    scratch: AttentionScratch,
    out: Floats,
) -> None:
    """out[t] = the attention of token t over its sequence's positions 0 … position[t], all heads.

    qkv: [T, (H + 2 Hkv) · Dh] with rotated queries, out: [T, H · Dh] float32. Dh is a multiple of 16. This step's keys
    and values are in the cache already.
    """
    group = num_heads // num_kv_heads
    num_runs = batch.runs.shape[0]
    slot_bytes = scratch.stack.strides[1]
    stack = scratch.stack.ctypes.data + team.rank * scratch.stack.strides[0]
    queries = scratch.queries[team.rank]
    scores = scratch.scores.ctypes.data + team.rank * scratch.scores.strides[0]

    chunk, num_chunks = _plan_chunks(team, batch, num_kv_heads)
    num_items = num_runs * num_kv_heads * num_chunks
    item = take(team, num_items)
    while item >= 0:
        number, part = item // num_chunks, item % num_chunks
        run, head = number // num_kv_heads, number % num_kv_heads
        first, num_queries = batch.runs[run, 0], batch.runs[run, 1]
        position, sequence = batch.positions[first], batch.sequences[first]
        num_tiles = (position + num_queries - 1) // TILE + 1
        begin, end = part * chunk, min(num_tiles, part * chunk + chunk)
        if begin < end:
            _gather_queries(qkv, first, num_queries, head, group, head_dim, queries)
            base = layer * kv.layer_bytes + head * kv.head_bytes
            rows = num_queries * group
            top = 0
            for tile in range(begin, end):
                partial = stack + top * slot_bytes
                _attend_tile(
                    batch,
                    kv,
                    base,
                    sequence,
                    tile,
                    position,
                    num_queries,
                    group,
                    head_dim,
                    queries.ctypes.data,
                    scores,
                    partial,
                )
                top = _push(stack, top, tile - begin, slot_bytes, rows, head_dim)
            _collapse(stack, top, slot_bytes, rows, head_dim)
            if num_chunks == 1:
                _write_out(stack, first, num_queries, head, group, head_dim, out)
            else:
                _copy_partial(stack, scratch.shared.ctypes.data + item * slot_bytes, rows, head_dim)
        item = take(team, num_items)
    barrier(team)
    if num_chunks > 1:
        _merge_chunks(team, batch, num_kv_heads, group, head_dim, chunk, num_chunks, scratch, out)
