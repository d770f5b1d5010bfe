"""Normalisation: of whole rows (RMS, Zhang and Sennrich 2019; layer norm, Ba et al. 2016), and of each query and key
head.

In: x float32 and a record of the norm. Out: RMS x / √(mean(x²) + ε) · weight, or, with a centre, the same of x - mean,
plus a bias. A record without a weight stands for a norm that the model doesn't have: nothing is done.
"""

from typing import Any, Final

import numpy as np

from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.team import Team, barrier, share
from cutaway.ops.kernel_cache import inner_jit, jit
from cutaway.ops.simd import add, fma, lane_sum, load, mul, splat, store, sub, zeros

NORM: Final = np.dtype(
    [
        ("weight", np.int64),  # address of float32 [D], or 0: the model has no such norm
        ("bias", np.int64),  # address of float32 [D]; read where centred
        ("epsilon", np.float32),
        ("centred", np.int32),  # 1: layer norm, 0: RMS norm
    ]
)
"""A norm as compiled code sees it: a record, so that one compiled forward serves every kind."""


@inner_jit
def _root_mean_square(source: int, width: int, epsilon: np.float32) -> Any:
    """The factor 1 / √(mean(x²) + ε), in all lanes: 16 sums along the row, then over the lanes in the fixed tree."""
    squares = zeros(1)
    for i in range(0, 4 * width, 64):
        v = load(source + i)
        squares = fma(v, v, squares)
    mean = lane_sum(squares) / np.float32(width)
    return splat(np.float32(1.0) / np.sqrt(mean + epsilon))


@inner_jit
def _centre(source: int, width: int, target: int) -> None:
    """target = source - mean(source)."""
    total = zeros(1)
    for i in range(0, 4 * width, 64):
        total = add(total, load(source + i))
    mean = splat(lane_sum(total) / np.float32(width))
    for i in range(0, 4 * width, 64):
        store(target + i, sub(load(source + i), mean))


@inner_jit
def _norm_row(source: int, width: int, kind: Any, target: int) -> None:
    """One row; ``target`` may be ``source``. width: a multiple of 16."""
    if kind.centred:
        _centre(source, width, target)
        scale = _root_mean_square(target, width, kind.epsilon)
        for i in range(0, 4 * width, 64):
            store(target + i, fma(mul(load(target + i), scale), load(kind.weight + i), load(kind.bias + i)))
    else:
        scale = _root_mean_square(source, width, kind.epsilon)
        for i in range(0, 4 * width, 64):
            store(target + i, mul(mul(load(source + i), scale), load(kind.weight + i)))


@jit
def norm(team: Team, x: Floats, kind: Any, out: Floats) -> None:
    """out[t] = norm(x[t]), both [T, D]; kind: a record ``NORM``. D is a multiple of 16.

    ``out`` is another array, and x is left as it was; or it is x itself, which a norm that is absent leaves alone.
    """
    if kind.weight == 0:
        return
    for t in share(team, x.shape[0]):
        source, target = x.ctypes.data + t * x.strides[0], out.ctypes.data + t * out.strides[0]
        _norm_row(source, x.shape[1], kind, target)
    barrier(team)


@jit
def head_norm(
    team: Team, qkv: Floats, query_kind: Any, key_kind: Any, num_heads: int, num_kv_heads: int, head_dim: int
) -> None:
    """Each query head and each key head of qkv [T, (H + 2 Hkv) · Dh], normed in place over its Dh numbers."""
    if query_kind.weight == 0:
        return
    for t in share(team, qkv.shape[0]):
        row = qkv.ctypes.data + t * qkv.strides[0]
        for head in range(num_heads):
            _norm_row(row + 4 * head * head_dim, head_dim, query_kind, row + 4 * head * head_dim)
        for head in range(num_heads, num_heads + num_kv_heads):
            _norm_row(row + 4 * head * head_dim, head_dim, key_kind, row + 4 * head * head_dim)
    barrier(team)
