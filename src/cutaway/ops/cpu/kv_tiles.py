"""Keys and values in memory: the layout of a sub-tile, and the kernels that write and read one, for float16 and
float32.

In: one token's key and value heads; then queries, or attention weights. Out: sub-tiles of 16 tokens; scores, or
weighted sums of values. For one KV head a sub-tile is

    keys   [Dh][16 tokens]     a lane is a token: a query's scores for 16 tokens need no sum over lanes
    values [16 tokens][Dh]     a lane is a dimension

so both directions of attention run along the lanes.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from cutaway.ops.arguments import kept
from cutaway.ops.kernel_cache import Kernel, kernel
from cutaway.ops.simd import (
    fma,
    load,
    load_rows,
    load_scalar,
    load_sized,
    splat_rows,
    store_rows,
    store_scalar_sized,
    store_sized,
    zeros,
)
from cutaway.ops.simd.lowering import VECTORS

SUBTILE: Final = 16  # tokens
QUERY_BLOCK: Final = 4  # query rows that a kernel takes at once
MOST_QUERIES: Final = {"avx512": 8}.get(VECTORS, QUERY_BLOCK)
"""… where there are so many. Four sums are too few to hide how long a multiply-add takes; eight are more than AVX2's
registers hold.
"""


@kept
class KVCache(NamedTuple):
    """The KV cache as compiled code sees it: addresses, strides in bytes, kernels."""

    keys: int  # address of [L, S, Hkv, Dh, 16], S sub-tiles
    values: int  # address of [L, S, Hkv, 16, Dh]
    layer_bytes: int
    subtile_bytes: int  # of all KV heads
    head_bytes: int
    element_bytes: int
    page_subtiles: int  # sub-tiles in a page, the unit of the block tables
    write: int  # kernels, by address
    score_one: int
    score_many: int
    score_most: int
    mix_one: int
    mix_many: int
    mix_most: int


def _score(name: str, M: int, E: int) -> Kernel:
    """The kernel that gives M query rows their scores; keys are floats of E bytes."""

    def score(
        keys: int, queries: int, query_stride: int, head_dim: int, out: int, out_stride: int, key_bytes: int
    ) -> None:
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
    """The kernel that adds weighted values to M rows; values are floats of E bytes."""
    vector_bytes = SUBTILE * E

    def mix(
        values: int,
        num_tokens: int,
        weights: int,
        weight_stride: int,
        head_dim: int,
        out: int,
        out_stride: int,
    ) -> None:
        """out[r, :] += Σ_t weights[r, t] · values[t, :], t ascending, for M rows r; 32 or 16 dimensions at a time."""
        token_bytes = head_dim * E
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


def _write(name: str, E: int) -> Kernel:
    """The kernel that writes a token's key and value as floats of E bytes."""
    column_bytes = SUBTILE * E

    def write(key: int, value: int, head_dim: int, keys: int, values: int) -> None:
        """Write one token's key (float32 [Dh]) down a column at ``keys``, its value along a row at ``values``."""
        for i in range(head_dim):
            store_scalar_sized(keys + i * column_bytes, load_scalar(key + 4 * i), E)
        for i in range(0, head_dim, SUBTILE):
            store_sized(values + i * E, load(value + 4 * i), E)

    write.__qualname__ = f"write_{name}"
    return kernel(write)


@dataclass(frozen=True)
class KVFormat:
    """One data type of the KV cache and its kernels."""

    name: str
    element_bytes: int
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


def _format(name: str, element_bytes: int) -> KVFormat:
    return KVFormat(
        name=name,
        element_bytes=element_bytes,
        write=_write(name, element_bytes),
        score_one=_score(name, 1, element_bytes),
        score_many=_score(name, QUERY_BLOCK, element_bytes),
        score_most=_score(name, MOST_QUERIES, element_bytes),
        mix_one=_mix(name, 1, element_bytes),
        mix_many=_mix(name, QUERY_BLOCK, element_bytes),
        mix_most=_mix(name, MOST_QUERIES, element_bytes),
    )


KV_FORMATS: Final = {"f16": _format("f16", 2), "f32": _format("f32", 4)}
