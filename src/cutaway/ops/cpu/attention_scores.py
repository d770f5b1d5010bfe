"""What attention computes on its way and never keeps: each query's score of each position; and the way from these on.

In: the arguments of ``attention``. Out: scores of single tokens over all positions that they attend, with the bits that
``attention`` works on; and from scores its result, tile by tile in its order, so that the same bits prove them.

Both are no part of the forward: taps that are derived call them. A row is computed alone here, with the kernels for one
row, which give it the bits that it has among others.
"""

import numpy as np

from cutaway.ops.cpu.arrays import AttentionScratch, Batch, Floats
from cutaway.ops.cpu.attention import (
    NO_WINDOW,
    SUBTILES,
    TILE,
    collapse,
    mix_rows,
    push,
    softmax_row,
    span,
    write_out,
)
from cutaway.ops.cpu.kv_tiles import SUBTILE, KVCache
from cutaway.ops.cpu.kv_write import subtile_index
from cutaway.ops.cpu.softcap import soft_capped
from cutaway.ops.cpu.team import Team, barrier, share
from cutaway.ops.kernel_cache import jit
from cutaway.ops.simd import call_kernel, keep_lanes, load, mul, store, zeros

_NOT_ATTENDED = np.float32(-np.inf)
_NO_CAP = np.float32(0.0)


@jit
def attention_scores(
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
    """out[t, h, c] = scale · q·k of token t's head h and position c, soft-capped where ``cap`` is not 0.

    Only attended positions are written, and -∞ beside them in their sub-tiles. qkv: [T, (H + 2 Hkv) · Dh], the rows of
    the batch's tokens, whose keys are in the cache; out: [T, H, C] float32, C a multiple of 64.
    """
    reach = window if window > 0 else NO_WINDOW
    group = num_heads // num_kv_heads
    queries = scratch.queries[team.rank]
    for t in share(team, qkv.shape[0]):
        position, sequence = batch.positions[t], batch.sequences[t]
        first, _ = span(position, reach, 0, position + 1)
        for head in range(num_heads):
            for i in range(head_dim):
                queries[0, i] = qkv[t, head * head_dim + i] * scale
            base = kv.keys + layer * kv.layer_bytes + head // group * kv.head_bytes
            row = out.ctypes.data + t * out.strides[0] + head * out.strides[1]
            for j in range(first // SUBTILE, position // SUBTILE + 1):
                keys = base + subtile_index(batch, kv, sequence, j) * kv.subtile_bytes
                target = row + 4 * SUBTILE * j
                call_kernel(kv.score_one, (keys, queries.ctypes.data, 4 * head_dim, head_dim, target, 4 * TILE))
                scores = load(target)
                if kv.scales > 0:
                    scores = mul(scores, load(keys + kv.scales))
                if cap != 0:
                    scores = soft_capped(scores, cap)
                store(target, keep_lanes(scores, first - SUBTILE * j, position + 1 - SUBTILE * j, _NOT_ATTENDED))
    barrier(team)


@jit
def attend_scores(
    team: Team,
    scores: Floats,
    batch: Batch,
    kv: KVCache,
    layer: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    window: int,
    scratch: AttentionScratch,
    out: Floats,
) -> None:
    """What ``attention`` makes of scores: softmax and weighted sum of values, in tiles merged by the tree.

    scores: [T, H, C] as ``attention_scores`` writes them; out: [T, H · Dh] float32.
    """
    reach = window if window > 0 else NO_WINDOW
    group = num_heads // num_kv_heads
    slot_bytes = scratch.stack.strides[1]
    stack = scratch.stack.ctypes.data + team.rank * scratch.stack.strides[0]
    weights = scratch.scores.ctypes.data + team.rank * scratch.scores.strides[0]
    for t in share(team, scores.shape[0]):
        position, sequence = batch.positions[t], batch.sequences[t]
        lowest = max(0, position - reach + 1) // TILE
        for head in range(num_heads):
            base = kv.values + layer * kv.layer_bytes + head // group * kv.head_bytes
            source = scores.ctypes.data + t * scores.strides[0] + head * scores.strides[1]
            top = stack
            for tile in range(lowest, position // TILE + 1):
                start = tile * TILE
                first, end = span(position, reach, start, TILE)
                for j in range(SUBTILES):
                    store(weights + 4 * SUBTILE * j, load(source + 4 * (start + SUBTILE * j)))
                softmax_row(weights, first, end, _NO_CAP, top + 4 * head_dim, top + 4 * head_dim + 64)
                for i in range(0, 4 * head_dim, 64):
                    store(top + i, zeros(1))
                for j in range(first // SUBTILE, (end + SUBTILE - 1) // SUBTILE):
                    values = base + subtile_index(batch, kv, sequence, SUBTILES * tile + j) * kv.subtile_bytes
                    of_subtile = weights + 4 * SUBTILE * j
                    if kv.scales > 0:
                        store(of_subtile, mul(load(of_subtile), load(values + kv.scales)))
                    begin, last = span(position, reach, start + SUBTILE * j, SUBTILE)
                    mix_rows(kv.mix_one, values, begin, last, of_subtile, head_dim, top, slot_bytes)
                top = push(top, tile, lowest, slot_bytes, 1, head_dim)
            collapse(stack, top, slot_bytes, 1, head_dim)
            write_out(stack, t, 1, head, 1, head_dim, out)
    barrier(team)
