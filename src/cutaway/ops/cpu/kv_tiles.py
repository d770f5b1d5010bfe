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

SUBTILE: Final = 16  # tokens
QUERY_BLOCK: Final = 4  # query rows that a kernel takes at once


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
    mix_one: int
    mix_many: int


def _score(name: str, M: int, E: int) -> Kernel:
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
        """out[r, :] += Σ_t weights[r, t] · values[t, :], t ascending, for M rows r; 64 or 16 dimensions at a time."""
        token_bytes = head_dim * E
        start = 0
        while start + 64 <= head_dim:
            target = out + 4 * start
            a = load_rows(target, out_stride, M)
            b = load_rows(target + 64, out_stride, M)
            c = load_rows(target + 128, out_stride, M)
            d = load_rows(target + 192, out_stride, M)
            for t in range(num_tokens):
                source = values + t * token_bytes + start * E
                weight = splat_rows(weights + 4 * t, weight_stride, M)
                a = fma(load_sized(source, E), weight, a)
                b = fma(load_sized(source + vector_bytes, E), weight, b)
                c = fma(load_sized(source + 2 * vector_bytes, E), weight, c)
                d = fma(load_sized(source + 3 * vector_bytes, E), weight, d)
            store_rows(target, out_stride, a)
            store_rows(target + 64, out_stride, b)
            store_rows(target + 128, out_stride, c)
            store_rows(target + 192, out_stride, d)
            start += 64
        while start < head_dim:
            target = out + 4 * start
            e = load_rows(target, out_stride, M)
            for t in range(num_tokens):
                weight = splat_rows(weights + 4 * t, weight_stride, M)
                e = fma(load_sized(values + t * token_bytes + start * E, E), weight, e)
            store_rows(target, out_stride, e)
            start += 16

    mix.__qualname__ = f"mix_{name}_{M}"
    return kernel(mix)


def _write(name: str, E: int) -> Kernel:
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
    score_many: Kernel
    mix_one: Kernel
    mix_many: Kernel

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All of the type's kernels."""
        return self.write, self.score_one, self.score_many, self.mix_one, self.mix_many


def _format(name: str, element_bytes: int) -> KVFormat:
    return KVFormat(
        name=name,
        element_bytes=element_bytes,
        write=_write(name, element_bytes),
        score_one=_score(name, 1, element_bytes),
        score_many=_score(name, QUERY_BLOCK, element_bytes),
        mix_one=_mix(name, 1, element_bytes),
        mix_many=_mix(name, QUERY_BLOCK, element_bytes),
    )


KV_FORMATS: Final = {"f16": _format("f16", 2), "f32": _format("f32", 4)}
