"""The KV cache: a pool of pages, each a whole number of sub-tiles of 16 positions.

In: a model's sizes, the number and length of pages, the data type. Out: the arrays, and the record by which compiled
code reads them. An entry of a block table names a page; "contiguous" is a page as long as a context.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cutaway.errors import InvalidRequestError
from cutaway.model.config import ModelConfig
from cutaway.model.shapes import Limits, dimensions, kv_rows
from cutaway.ops.cpu.kv_tiles import KV_FORMATS, SUBTILE, KVCache, KVFormat
from cutaway.ops.cpu.memory import Arena, aligned

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class KVPool:
    """Keys [L, S, Hkv, Dh, 16] and values [L, S, Hkv, 16, Dh], as numbers and what these are multiplied with, and the
    record of their addresses. Scales are float32 [L, S, Hkv, 16], or [L, S, Hkv, 0] where there are none.
    """

    keys: Array
    key_scales: Array
    values: Array
    value_scales: Array
    record: KVCache
    num_pages: int
    page_length: int  # positions

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All that lies in the pool; the second axis is that of sub-tiles."""
        return self.keys, self.key_scales, self.values, self.value_scales

    @property
    def nbytes(self) -> int:
        """Bytes of the whole pool."""
        return sum(array.nbytes for array in self.arrays)

    @property
    def position_bytes(self) -> int:
        """Bytes of one position's keys and values over all layers."""
        return self.nbytes // (self.num_pages * self.page_length)


def kv_format(data_type: str) -> KVFormat:
    """The data type of this name, "f16", "f32" or "int8"."""
    if not isinstance(data_type, str) or data_type not in KV_FORMATS:
        raise InvalidRequestError(f"kv_dtype is {data_type!r}; it must be one of {', '.join(KV_FORMATS)}.", "kv_dtype")
    return KV_FORMATS[data_type]


def position_bytes(config: ModelConfig, data_type: str) -> int:
    """Bytes of one position's keys and values over all layers."""
    sizes = dimensions(config, Limits(1, 1, 1, 1, subtiles=1))
    return sum(row.nbytes(sizes) for row in kv_rows(kv_format(data_type))) // SUBTILE


def allocate_kv_pool(config: ModelConfig, num_pages: int, page_length: int, data_type: str = "f16") -> KVPool:
    """A pool of zeroed pages. page_length: positions, a multiple of 16; data_type: "f16", "f32" or "int8"."""
    if page_length < 1 or page_length % SUBTILE != 0:
        raise InvalidRequestError(f"page_length is {page_length}; it must be a multiple of {SUBTILE}.", "page_length")
    layout = kv_format(data_type)
    L, S, Hkv, Dh = config.num_layers, num_pages * page_length // SUBTILE, config.num_kv_heads, config.head_dim
    dtype, num_scales = np.dtype(layout.dtype), SUBTILE if layout.scaled else 0
    numbers_bytes = SUBTILE * Dh * dtype.itemsize
    head_bytes = numbers_bytes + num_scales * np.dtype(np.float32).itemsize
    size = L * S * Hkv * head_bytes
    arena = Arena(2 * aligned(size))

    def take(*shape: int) -> tuple[Array, Array]:
        """Numbers of this shape for each head of each sub-tile, and the scales behind them."""
        heads = arena.take(size).reshape(L, S, Hkv, head_bytes)
        numbers, scales = heads[..., :numbers_bytes], heads[..., numbers_bytes:]
        return numbers.view(dtype).reshape(L, S, Hkv, *shape), scales.view(np.float32)

    keys, key_scales = take(Dh, SUBTILE)
    values, value_scales = take(SUBTILE, Dh)
    record = KVCache(
        keys=int(keys.ctypes.data),
        values=int(values.ctypes.data),
        layer_bytes=S * Hkv * head_bytes,
        subtile_bytes=Hkv * head_bytes,
        head_bytes=head_bytes,
        scales=numbers_bytes if layout.scaled else 0,
        page_subtiles=page_length // SUBTILE,
        write=layout.write.address,
        score_one=layout.score_one.address,
        score_many=layout.score_many.address,
        score_most=layout.score_most.address,
        mix_one=layout.mix_one.address,
        mix_many=layout.mix_many.address,
        mix_most=layout.mix_most.address,
    )
    return KVPool(keys, key_scales, values, value_scales, record, num_pages, page_length)


def copy_page(pool: KVPool, source: int, target: int) -> None:
    """The keys and values of page ``source``, of all layers, to page ``target``."""
    subtiles = pool.page_length // SUBTILE
    read, write = (slice(page * subtiles, (page + 1) * subtiles) for page in (source, target))
    for array in pool.arrays:
        array[:, write] = array[:, read]
