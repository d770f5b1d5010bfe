"""Attention, one algorithm for decoding, prefill and recomputation: tiles on an absolute grid, merged by a fixed tree.

In: rotated queries, the KV cache, the batch. Out: for each token and head Σ softmax(scale · q·k) · v over the positions
up to its own, or, with a window of W, over the last W of them.

The context of a query is cut at multiples of 64 positions. Each tile gives a partial (m, l, o): the greatest score,
the sum of e^(score - m), and the sum of e^(score - m) · v, each in one fixed order. Partials are merged in the binary
tree over tile numbers,

    merge (m₁, l₁, o₁), (m₂, l₂, o₂):   m = max(m₁, m₂),  l = l₁·e^(m₁-m) + l₂·e^(m₂-m),  o likewise

which is a function of the position alone. So the result has the same bits whoever computes it with whatever
neighbours, and a long context can be split over the team at any subtree. (Online softmax: Milakov and Gimelshein 2018;
split: Dao et al. 2023.) A tile before a query's window is not in its tree: whether it was skipped, or computed for a
neighbour whose window reaches further back and left empty (l = 0), its merge changes nothing.

A work item is a run of queries × the query heads that share a KV head: its rows read each key and value once.
"""

from typing import Final

import numpy as np

from cutaway.ops.cpu.arrays import AttentionScratch, Batch, Floats
from cutaway.ops.cpu.kv_tiles import MOST_QUERIES, QUERY_BLOCK, SUBTILE, KVCache
from cutaway.ops.cpu.kv_write import subtile_index
from cutaway.ops.cpu.math import exp
from cutaway.ops.cpu.softcap import soft_capped
from cutaway.ops.cpu.team import Team, barrier, take
from cutaway.ops.kernel_cache import inlined, inner_jit, jit
from cutaway.ops.simd import (
    add,
    call_kernel,
    div,
    fma,
    keep_lanes,
    lane_max,
    lane_sum,
    load,
    load_rows,
    load_scalar,
    maximum,
    mul,
    splat,
    store,
    store_rows,
    sub,
    zeros,
)

TILE: Final = 64  # positions
SUBTILES: Final = TILE // SUBTILE
RUN_LENGTH: Final = 8  # queries of a work item; divides TILE, so that a run never crosses a tile's border
PARTIAL_EXTRA: Final = 32  # floats behind a partial's o: m in 16 lanes, l in 16 lanes
MOST_SHARED: Final = 64  # partials of chunks that the team can share
BALANCE: Final = 4  # work items a member below which contexts are split

_NEVER: Final = np.float32(-1e30)  # the score of a position that is not attended
NO_WINDOW: Final = 1 << 30  # a window of more positions than there are
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


@inlined
def padded_rows(rows: int) -> int:
    """Rows of an item as the kernels want them: one, or a multiple of QUERY_BLOCK."""
    return rows if rows == 1 else -(-rows // QUERY_BLOCK) * QUERY_BLOCK


@inner_jit
def _rows_at_once(rows: int, r: int) -> int:
    """How many of the rows from r on a kernel takes."""
    return 1 if rows == 1 else MOST_QUERIES if r + MOST_QUERIES <= rows else QUERY_BLOCK


@inner_jit
def _scale_rows(scores: int, scales: int, rows: int) -> None:
    """scores[r, 0:16] · scales[0:16], in place; scores, or what has become of them: weights."""
    by = load(scales)
    for r in range(rows):
        target = scores + 4 * TILE * r
        store(target, mul(load(target), by))


@inner_jit
def _scores(kv: KVCache, keys: int, queries: int, rows: int, head_dim: int, scores: int) -> None:
    """scores[r, 0:16] for one sub-tile of keys."""
    r = 0
    while r < rows:
        step = _rows_at_once(rows, r)
        kernel = kv.score_most if step == MOST_QUERIES else kv.score_many if step == QUERY_BLOCK else kv.score_one
        call_kernel(
            kernel,
            (
                keys,
                queries + 4 * head_dim * r,
                4 * head_dim,
                head_dim,
                scores + 4 * TILE * r,
                4 * TILE,
            ),
        )
        r += step
    if kv.scales > 0:
        _scale_rows(scores, keys + kv.scales, rows)


@inner_jit
def softmax_row(scores: int, first: int, end: int, cap: np.float32, partial_max: int, partial_sum: int) -> None:
    """scores[0:64] become e^(score - m), 0 outside first … end - 1; m and l are written in all lanes. Scores are
    soft-capped before, where the cap is not 0.
    """
    if cap != 0:
        for j in range(SUBTILES):
            store(scores + 64 * j, soft_capped(load(scores + 64 * j), cap))
    greatest = splat(_NEVER)
    for j in range(SUBTILES):
        attended = keep_lanes(load(scores + 64 * j), first - SUBTILE * j, end - SUBTILE * j, _NEVER)
        greatest = maximum(greatest, attended)
    m = splat(lane_max(greatest))
    store_rows(scores, 64, exp(sub(load_rows(scores, 64, SUBTILES), m)))  # four at a time: one alone is all waiting
    total = zeros(1)
    for j in range(SUBTILES):
        e = keep_lanes(load(scores + 64 * j), first - SUBTILE * j, end - SUBTILE * j, _ZERO)
        store(scores + 64 * j, e)
        total = add(total, e)
    store(partial_max, m)
    store(partial_sum, splat(lane_sum(total)))


@inner_jit
def mix_rows(
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
        call_kernel(kernel, (values, begin, end, weights, 4 * TILE, head_dim, out, out_stride))


@inner_jit
def _merge(left: int, right: int, rows: int, head_dim: int) -> None:
    """left = merge(left, right), partials [rows, Dh + 32]. An empty left one (l = 0), before the window, gives the
    right one bit for bit: the arithmetic would do so but for the sign of -0.
    """
    stride = 4 * (head_dim + PARTIAL_EXTRA)
    for r in range(rows):
        a, b = left + r * stride, right + r * stride
        l_a, l_b = a + 4 * head_dim + 64, b + 4 * head_dim + 64
        if load_scalar(l_a) == _ZERO:
            for i in range(0, stride, 64):
                store(a + i, load(b + i))
        else:
            m_a, m_b = load(a + 4 * head_dim), load(b + 4 * head_dim)
            m = maximum(m_a, m_b)
            w_a, w_b = exp(sub(m_a, m)), exp(sub(m_b, m))
            store(a + 4 * head_dim, m)
            store(l_a, fma(load(l_a), w_a, mul(load(l_b), w_b)))
            for i in range(0, 4 * head_dim, 64):
                store(a + i, fma(load(a + i), w_a, mul(load(b + i), w_b)))


@inner_jit
def _copy_partial(source: int, target: int, rows: int, head_dim: int) -> None:
    """target = source, partials [rows, Dh + 32]."""
    for i in range(0, 4 * rows * (head_dim + PARTIAL_EXTRA), 64):
        store(target + i, load(source + i))


@inner_jit
def push(top: int, number: int, lowest: int, slot_bytes: int, rows: int, head_dim: int) -> int:
    """The partial of leaf ``number`` lies in the slot at ``top`` of a stack: merge all subtrees that it completes.
    Leaves below ``lowest`` are not in the tree. Returns the next free slot's address.
    """
    leaves = 1  # of the subtree at the top
    while number & 1 and number * leaves > lowest:  # the subtree to its left ends there: it has a leaf
        _merge(top - slot_bytes, top, rows, head_dim)
        top -= slot_bytes
        number >>= 1
        leaves *= 2
    return top + slot_bytes


@inner_jit
def collapse(stack: int, top: int, slot_bytes: int, rows: int, head_dim: int) -> None:
    """Merge what is left on the stack below ``top``, its next free slot, right to left, into its first one."""
    while top > stack + slot_bytes:
        _merge(top - 2 * slot_bytes, top - slot_bytes, rows, head_dim)
        top -= slot_bytes


@inner_jit
def span(position: int, window: int, start: int, length: int) -> tuple[int, int]:
    """Which of the ``length`` positions from ``start`` on a query attends: first and end, counted from there."""
    first = min(length, max(0, position - window + 1 - start))
    return first, min(length, max(0, position + 1 - start))


@inner_jit
def _mix_block(
    kv: KVCache,
    values: int,
    start: int,
    position: int,
    num_queries: int,
    group: int,
    window: int,
    row: int,
    step: int,
    head_dim: int,
    weights: int,
    out: int,
    out_stride: int,
) -> None:
    """Rows row … row + step - 1 of out += weights @ values, for the sub-tile of positions from ``start`` on.

    The rows share the positions that all of them attend; what an early query alone attends comes before, what a late
    one alone attends after, row by row: a weight of 0 is not enough, since 0 · NaN would leak from a slot that nobody
    wrote yet.
    """
    begin, _ = span(position + min(num_queries - 1, (row + step - 1) // group), window, start, SUBTILE)
    _, end = span(position + min(num_queries - 1, row // group), window, start, SUBTILE)
    end = max(begin, end)
    if begin > 0:
        for r in range(step):
            first, last = span(position + min(num_queries - 1, (row + r) // group), window, start, SUBTILE)
            early = min(begin, last)
            mix_rows(
                kv.mix_one, values, first, early, weights + 4 * TILE * r, head_dim, out + r * out_stride, out_stride
            )
    kernel = kv.mix_most if step == MOST_QUERIES else kv.mix_many if step == QUERY_BLOCK else kv.mix_one
    mix_rows(kernel, values, begin, end, weights, head_dim, out, out_stride)
    for r in range(1, step):
        _, last = span(position + min(num_queries - 1, (row + r) // group), window, start, SUBTILE)
        late = weights + 4 * TILE * r
        mix_rows(kv.mix_one, values, end, last, late, head_dim, out + r * out_stride, out_stride)


@inner_jit
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
    window: int,
    cap: np.float32,
    queries: int,
    scores: int,
    partial: int,
) -> None:
    """The partial of one tile for a run of queries from ``position``; rows are queries × heads of the group."""
    rows = padded_rows(num_queries * group)
    stride = 4 * (head_dim + PARTIAL_EXTRA)
    start = tile * TILE
    first, _ = span(position, window, start, TILE)
    _, end = span(position + num_queries - 1, window, start, TILE)
    subtiles = range(first // SUBTILE, (end + SUBTILE - 1) // SUBTILE)  # that any of the queries attends
    for j in subtiles:
        keys = kv.keys + base + subtile_index(batch, kv, sequence, SUBTILES * tile + j) * kv.subtile_bytes
        _scores(kv, keys, queries, rows, head_dim, scores + 64 * j)
    for r in range(rows):
        # Rows that only fill up the last block do as the last query does.
        first, end = span(position + min(num_queries - 1, r // group), window, start, TILE)
        o = partial + r * stride
        softmax_row(scores + 4 * TILE * r, first, end, cap, o + 4 * head_dim, o + 4 * head_dim + 64)
        for i in range(0, 4 * head_dim, 64):
            store(o + i, zeros(1))
    for j in subtiles:
        values = kv.values + base + subtile_index(batch, kv, sequence, SUBTILES * tile + j) * kv.subtile_bytes
        if kv.scales > 0:
            # A slot that nobody wrote yet may spoil its weight, which no value is then mixed with.
            _scale_rows(scores + 64 * j, values + kv.scales, rows)
        r = 0
        while r < rows:
            step = _rows_at_once(rows, r)
            _mix_block(
                kv,
                values,
                start + SUBTILE * j,
                position,
                num_queries,
                group,
                window,
                r,
                step,
                head_dim,
                scores + 4 * TILE * r + 64 * j,
                partial + r * stride,
                stride,
            )
            r += step


@inner_jit
def _gather_queries(
    qkv: Floats, first: int, num_queries: int, head: int, group: int, head_dim: int, scale: np.float32, queries: Floats
) -> None:
    """queries[r] = the run's query rows of one KV head, scaled; zeros where rows only fill up the last block."""
    rows = num_queries * group
    for r in range(rows):
        column = (head * group + r % group) * head_dim
        for i in range(head_dim):
            queries[r, i] = qkv[first + r // group, column + i] * scale
    for r in range(rows, padded_rows(rows)):
        for i in range(head_dim):
            queries[r, i] = _ZERO


@inner_jit
def write_out(partial: int, first: int, num_queries: int, head: int, group: int, head_dim: int, out: Floats) -> None:
    """out = o / l."""
    stride = 4 * (head_dim + PARTIAL_EXTRA)
    for r in range(num_queries * group):
        source = partial + r * stride
        target = out.ctypes.data + (first + r // group) * out.strides[0] + 4 * head_dim * (head * group + r % group)
        reciprocal = div(splat(_ONE), load(source + 4 * head_dim + 64))
        for i in range(0, 4 * head_dim, 64):
            store(target + i, mul(load(source + i), reciprocal))


@inner_jit
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


@inner_jit
def _merge_chunks(
    team: Team,
    batch: Batch,
    num_kv_heads: int,
    group: int,
    head_dim: int,
    window: int,
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
        lowest = max(0, batch.positions[first] - window + 1) // TILE // chunk
        rows = num_queries * group
        top = stack
        for part in range(lowest, (num_tiles + chunk - 1) // chunk):
            source = scratch.shared.ctypes.data + (item * num_chunks + part) * slot_bytes
            _copy_partial(source, top, rows, head_dim)
            top = push(top, part, lowest, slot_bytes, rows, head_dim)
        collapse(stack, top, slot_bytes, rows, head_dim)
        write_out(stack, first, num_queries, head, group, head_dim, out)
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
    window: int,
    scale: np.float32,
    cap: np.float32,
    scratch: AttentionScratch,
    out: Floats,
) -> None:
    """out[t] = the attention of token t over its sequence's positions up to position[t], all heads.

    window: how many positions it attends, its own included; 0: all. scale: of q·k. cap: of soft-capped scores, or 0.
    qkv: [T, (H + 2 Hkv) · Dh] with rotated queries, out: [T, H · Dh] float32. Dh is a multiple of 16. This step's keys
    and values are in the cache already.
    """
    reach = window if window > 0 else NO_WINDOW
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
        lowest = max(0, position - reach + 1) // TILE
        begin, end = max(lowest, part * chunk), min(num_tiles, part * chunk + chunk)
        if begin < end:
            _gather_queries(qkv, first, num_queries, head, group, head_dim, scale, queries)
            base = layer * kv.layer_bytes + head * kv.head_bytes
            rows = num_queries * group
            top = stack
            for tile in range(begin, end):
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
                    reach,
                    cap,
                    queries.ctypes.data,
                    scores,
                    top,
                )
                number = tile - part * chunk
                top = push(top, number, lowest - part * chunk, slot_bytes, rows, head_dim)
            collapse(stack, top, slot_bytes, rows, head_dim)
            if num_chunks == 1:
                write_out(stack, first, num_queries, head, group, head_dim, out)
            else:
                _copy_partial(stack, scratch.shared.ctypes.data + item * slot_bytes, rows, head_dim)
        item = take(team, num_items)
    barrier(team)
    if num_chunks > 1:
        _merge_chunks(team, batch, num_kv_heads, group, head_dim, reach, chunk, num_chunks, scratch, out)
