"""The KV cache: a pool of pages, each a whole number of sub-tiles of 16 positions.

In: a model's sizes, the number and length of pages, the data type. Out: the arrays, and the record by which compiled
code reads them. An entry of a block table names a page; "contiguous" is a page as long as a context.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutaway.errors import InvalidRequestError
from cutaway.model.config import ModelConfig
from cutaway.model.shapes import KV, Limits, dimensions
from cutaway.ops.cpu.kv_tiles import KV_FORMATS, SUBTILE, KVCache, KVFormat
from cutaway.ops.cpu.memory import Arena, aligned


@dataclass(frozen=True)
class KVPool:
    """Keys [L, S, Hkv, Dh, 16] and values [L, S, Hkv, 16, Dh] with the record of their addresses."""

    keys: "np.ndarray[Any, Any]"
    values: "np.ndarray[Any, Any]"
    record: KVCache
    num_pages: int
    page_length: int  # positions

    @property
    def nbytes(self) -> int:
        """Bytes of the whole pool."""
        return self.keys.nbytes + self.values.nbytes

    @property
    def position_bytes(self) -> int:
        """Bytes of one position's keys and values over all layers."""
        return self.nbytes // (self.num_pages * self.page_length)


def kv_format(data_type: str) -> KVFormat:
    """The data type of this name, "f16" or "f32"."""
    if not isinstance(data_type, str) or data_type not in KV_FORMATS:
        raise InvalidRequestError(f"kv_dtype is {data_type!r}; it must be one of {', '.join(KV_FORMATS)}.", "kv_dtype")
    return KV_FORMATS[data_type]


def allocate_kv_pool(config: ModelConfig, num_pages: int, page_length: int, data_type: str = "f16") -> KVPool:
    """A pool of zeroed pages. page_length: positions, a multiple of 16; data_type: "f16" or "f32"."""
    if page_length < 1 or page_length % SUBTILE != 0:
        raise InvalidRequestError(f"page_length is {page_length}; it must be a multiple of {SUBTILE}.", "page_length")
    layout = kv_format(data_type)
    # Of all dimensions only the number of sub-tiles comes from the engine's limits.
    sizes = dimensions(config, Limits(1, 1, 1, 1, num_pages * page_length // SUBTILE))
    dtype = np.dtype(np.float16 if layout.element_bytes == 2 else np.float32)
    shapes = [row.size(sizes) for row in KV]
    nbytes = [math.prod(shape) * dtype.itemsize for shape in shapes]
    arena = Arena(sum(aligned(size) for size in nbytes))
    keys, values = (arena.take(size).view(dtype).reshape(shape) for size, shape in zip(nbytes, shapes, strict=True))
    record = KVCache(
        keys=int(keys.ctypes.data),
        values=int(values.ctypes.data),
        layer_bytes=keys.strides[0],
        subtile_bytes=keys.strides[1],
        head_bytes=keys.strides[2],
        element_bytes=dtype.itemsize,
        page_subtiles=page_length // SUBTILE,
        write=layout.write.address,
        score_one=layout.score_one.address,
        score_many=layout.score_many.address,
        score_most=layout.score_most.address,
        mix_one=layout.mix_one.address,
        mix_many=layout.mix_many.address,
        mix_most=layout.mix_most.address,
    )
    return KVPool(keys, values, record, num_pages, page_length)


def copy_page(pool: KVPool, source: int, target: int) -> None:
    """The keys and values of page ``source``, of all layers, to page ``target``."""
    subtiles = pool.page_length // SUBTILE
    read, write = (slice(page * subtiles, (page + 1) * subtiles) for page in (source, target))
    pool.keys[:, write] = pool.keys[:, read]
    pool.values[:, write] = pool.values[:, read]
