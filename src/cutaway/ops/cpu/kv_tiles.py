"""Keys and values in memory: the layout of a sub-tile, and the kernels that write and read one, for float16 and
float32.

In: one token's key and value heads; then queries, or attention weights. Out: sub-tiles of 16 tokens; scores, or
weighted sums of values. For one KV head a sub-tile is

    keys   [Dh][16 tokens]     a lane is a token: a query's scores for 16 tokens need no sum over lanes
    values [16 tokens][Dh]     a lane is a dimension

so both directions of attention run along the lanes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from cutaway.ops.kernel_cache import Kernel, kernel
from cutaway.ops.simd import (
    fma,
    load,
    load_half,
    load_rows,
    load_scalar,
    splat_rows,
    store,
    store_half,
    store_half_scalar,
    store_rows,
    store_scalar,
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


def _score(name: str, M: int, load_keys: Callable[[int], Any]) -> Kernel:
    def score(
        keys: int, queries: int, query_stride: int, head_dim: int, out: int, out_stride: int, key_bytes: int
    ) -> None:
        """out[r, 0:16] = Σ_d queries[r, d] · keys[d, 0:16], d ascending, for M rows r."""
        total = zeros(M)
        for _ in range(head_dim):
            total = fma(load_keys(keys), splat_rows(queries, query_stride, M), total)
            keys += key_bytes
            queries += 4
        store_rows(out, out_stride, total)

    score.__qualname__ = f"score_{name}_{M}"
    return kernel(score)


def _mix(name: str, M: int, load_values: Callable[[int], Any], element_bytes: int) -> Kernel:
    vector_bytes = SUBTILE * element_bytes

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
        token_bytes = head_dim * element_bytes
        start = 0
        while start + 64 <= head_dim:
            target = out + 4 * start
            a = load_rows(target, out_stride, M)
            b = load_rows(target + 64, out_stride, M)
            c = load_rows(target + 128, out_stride, M)
            d = load_rows(target + 192, out_stride, M)
            for t in range(num_tokens):
                source = values + t * token_bytes + start * element_bytes
                weight = splat_rows(weights + 4 * t, weight_stride, M)
                a = fma(load_values(source), weight, a)
                b = fma(load_values(source + vector_bytes), weight, b)
                c = fma(load_values(source + 2 * vector_bytes), weight, c)
                d = fma(load_values(source + 3 * vector_bytes), weight, d)
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
                e = fma(load_values(values + t * token_bytes + start * element_bytes), weight, e)
            store_rows(target, out_stride, e)
            start += 16

    mix.__qualname__ = f"mix_{name}_{M}"
    return kernel(mix)


def _write(
    name: str,
    store_one: Callable[[int, Any], None],
    store_vector: Callable[[int, Any], None],
    element_bytes: int,
) -> Kernel:
    column_bytes = SUBTILE * element_bytes

    def write(key: int, value: int, head_dim: int, keys: int, values: int) -> None:
        """Write one token's key down a column at ``keys`` and its value along a row at ``values``; both are float32
        [Dh].
        """
        for i in range(head_dim):
            store_one(keys + i * column_bytes, load_scalar(key + 4 * i))
        for i in range(0, head_dim, SUBTILE):
            store_vector(values + i * element_bytes, load(value + 4 * i))

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


def _format(
    name: str,
    element_bytes: int,
    load_vector: Callable[[int], Any],
    store_one: Callable[[int, Any], None],
    store_vector: Callable[[int, Any], None],
) -> KVFormat:
    return KVFormat(
        name=name,
        element_bytes=element_bytes,
        write=_write(name, store_one, store_vector, element_bytes),
        score_one=_score(name, 1, load_vector),
        score_many=_score(name, QUERY_BLOCK, load_vector),
        mix_one=_mix(name, 1, load_vector, element_bytes),
        mix_many=_mix(name, QUERY_BLOCK, load_vector, element_bytes),
    )


KV_FORMATS: Final = {
    "f16": _format("f16", 2, load_half, store_half_scalar, store_half),
    "f32": _format("f32", 4, load, store_scalar, store),
}
