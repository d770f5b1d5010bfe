"""Keys and values in memory: the layout of a sub-tile, and the kernels that write and read one, for float16, float32
and int8.

In: one token's key and value heads; then queries, or attention weights. Out: sub-tiles of 16 tokens; scores, or
weighted sums of values. For one KV head a sub-tile is

    keys   [Dh][16 tokens]     a lane is a token: a query's scores for 16 tokens need no sum over lanes
    values [16 tokens][Dh]     a lane is a dimension

so both directions of attention run along the lanes. Behind int8 numbers lie 16 float32, a scale for each token's key,
or value: number · scale. A score is scaled when it is there, a weight before it is used, and the kernels that read know
nothing of it.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from cutaway.ops.arguments import kept
from cutaway.ops.cpu.quantize import int8_scales
from cutaway.ops.kernel_cache import Kernel, inlined, kernel
from cutaway.ops.simd import (
    absolute,
    bits_as_int,
    fma,
    lane_max_int,
    load,
    load_rows,
    load_scalar,
    load_sized,
    maximum_int,
    mul,
    splat,
    splat_rows,
    store_rows,
    store_scalar,
    store_scalar_sized,
    store_sized,
    zeros,
    zeros_int,
)
from cutaway.ops.simd.lowering import VECTORS

SUBTILE: Final = 16  # tokens
QUERY_BLOCK: Final = 4  # query rows that a kernel takes at once
MOST_QUERIES: Final = {"avx512": 8}.get(VECTORS, QUERY_BLOCK)
"""… where there are so many. Four sums are too few to hide how long a multiply-add takes; eight are more than AVX2's
registers hold.
"""
_ONE: Final = np.float32(1.0)


@kept
class KVCache(NamedTuple):
    """The KV cache as compiled code sees it: addresses, strides in bytes, kernels."""

    keys: int  # address of [L, S, Hkv, Dh, 16], S sub-tiles
    values: int  # address of [L, S, Hkv, 16, Dh]
    layer_bytes: int
    subtile_bytes: int  # of all KV heads
    head_bytes: int
    scales: int  # bytes from a head's numbers to the 16 scales behind them, or 0: there are none
    page_subtiles: int  # sub-tiles in a page, the unit of the block tables
    write: int  # kernels, by address
    score_one: int
    score_many: int
    score_most: int
    mix_one: int
    mix_many: int
    mix_most: int


def _score(name: str, M: int, E: int) -> Kernel:
    """The kernel that gives M query rows their scores; keys are numbers of E bytes."""
    key_bytes = SUBTILE * E

    def score(keys: int, queries: int, query_stride: int, head_dim: int, out: int, out_stride: int) -> None:
        """out[r, 0:16] = Σ_d queries[r, d] · keys[d, 0:16], d ascending, for M rows r."""
        total = zeros(M)
        for _ in range(head_dim):
            total = fma(load_sized(keys, E), splat_rows(queries, query_stride, M), total)
            keys += key_bytes
            queries += 4
        store_rows(out, out_stride, total)

    score.__qualname__ = f"score_{name}_{M}"
    return kernel(score)


def _mix(name: str, M: int, E: int) -> Kernel:
    """The kernel that adds weighted values to M rows; values are numbers of E bytes."""
    vector_bytes = SUBTILE * E

    def mix(
        values: int,
        first: int,
        end: int,
        weights: int,
        weight_stride: int,
        head_dim: int,
        out: int,
        out_stride: int,
    ) -> None:
        """out[r, :] += Σ_t weights[r, t] · values[t, :], t = first … end - 1 ascending, for M rows r; 32 or 16
        dimensions at a time. No other token's value is read.
        """
        token_bytes = head_dim * E
        num_tokens = end - first
        values += first * token_bytes
        weights += 4 * first
        start = 0
        while start + 32 <= head_dim:
            target = out + 4 * start
            a, b = load_rows(target, out_stride, M), load_rows(target + 64, out_stride, M)
            source, weight = values + start * E, weights
            for _ in range(num_tokens):
                w = splat_rows(weight, weight_stride, M)
                a, b = fma(load_sized(source, E), w, a), fma(load_sized(source + vector_bytes, E), w, b)
                source += token_bytes
                weight += 4
            store_rows(target, out_stride, a)
            store_rows(target + 64, out_stride, b)
            start += 32
        if start < head_dim:
            target = out + 4 * start
            a = load_rows(target, out_stride, M)
            for t in range(num_tokens):
                w = splat_rows(weights + 4 * t, weight_stride, M)
                a = fma(load_sized(values + t * token_bytes + start * E, E), w, a)
            store_rows(target, out_stride, a)

    mix.__qualname__ = f"mix_{name}_{M}"
    return kernel(mix)


@inlined
def _write_scale(x: int, head_dim: int, target: int) -> np.float32:
    """Write max|x| / 127 of float32 [Dh] to ``target``; what to multiply x with: 127 / max|x|."""
    bits = zeros_int(1)
    for i in range(0, head_dim, SUBTILE):
        bits = maximum_int(bits, bits_as_int(absolute(load(x + 4 * i))))
    inverse, scale = int8_scales(lane_max_int(bits))
    store_scalar(target, scale)
    return inverse


def _write(name: str, E: int, scaled: bool) -> Kernel:
    """The kernel that writes a token's key and value as numbers of E bytes, which are scaled or not."""

    def write(key: int, value: int, head_dim: int, slot: int, keys: int, values: int) -> None:
        """Write one token's key (float32 [Dh]) down a column of the sub-tile at ``keys``, its value along a row of the
        one at ``values``; slot: which.
        """
        key_factor = value_factor = _ONE
        if scaled:
            scale = SUBTILE * E * head_dim + 4 * slot
            key_factor = _write_scale(key, head_dim, keys + scale)
            value_factor = _write_scale(value, head_dim, values + scale)
        for i in range(head_dim):
            store_scalar_sized(keys + (i * SUBTILE + slot) * E, load_scalar(key + 4 * i) * key_factor, E)
        for i in range(0, head_dim, SUBTILE):
            store_sized(values + (slot * head_dim + i) * E, mul(load(value + 4 * i), splat(value_factor)), E)

    write.__qualname__ = f"write_{name}"
    return kernel(write)


@dataclass(frozen=True)
class KVFormat:
    """One data type of the KV cache and its kernels."""

    name: str
    dtype: str  # NumPy's name of the numbers' type
    scaled: bool  # each key and value is numbers times a float32 scale of its own
    write: Kernel
    score_one: Kernel
    score_many: Kernel  # for QUERY_BLOCK rows
    score_most: Kernel  # for MOST_QUERIES rows
    mix_one: Kernel
    mix_many: Kernel
    mix_most: Kernel

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All of the type's kernels."""
        score, mix = (self.score_one, self.score_many, self.score_most), (self.mix_one, self.mix_many, self.mix_most)
        return self.write, *score, *mix


def _format(name: str, dtype: str, scaled: bool = False) -> KVFormat:
    E = np.dtype(dtype).itemsize
    return KVFormat(
        name=name,
        dtype=dtype,
        scaled=scaled,
        write=_write(name, E, scaled),
        score_one=_score(name, 1, E),
        score_many=_score(name, QUERY_BLOCK, E),
        score_most=_score(name, MOST_QUERIES, E),
        mix_one=_mix(name, 1, E),
        mix_many=_mix(name, QUERY_BLOCK, E),
        mix_most=_mix(name, MOST_QUERIES, E),
    )


KV_FORMATS: Final = {
    each.name: each for each in (_format("f16", "float16"), _format("f32", "float32"), _format("int8", "int8", True))
}
