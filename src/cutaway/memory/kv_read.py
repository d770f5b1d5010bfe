"""Keys and values of one sequence, read back from the KV pool's sub-tiles as plain arrays.

In: a pool, a layer, the sequence's pages, how many of its positions. Out: keys, or values, as attention takes them: the
numbers that the cache keeps, times their scales where it has such.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cutaway.memory.kv_cache import KVPool
from cutaway.ops.cpu.arrays import Ints
from cutaway.ops.cpu.kv_tiles import SUBTILE


def read_keys(pool: KVPool, layer: int, pages: Sequence[int] | Ints, length: int) -> npt.NDArray[Any]:
    """The rotated keys of positions 0 … length - 1: a copy, [C, Hkv, Dh] float16 or float32, C = length."""
    subtiles = _subtiles(pool, pages, length)
    numbers = pool.keys[layer, subtiles].transpose(0, 3, 1, 2)  # [subtiles, Hkv, Dh, 16] → [subtiles, 16, Hkv, Dh]
    return _flat(numbers, pool.key_scales[layer, subtiles], length)


def read_values(pool: KVPool, layer: int, pages: Sequence[int] | Ints, length: int) -> npt.NDArray[Any]:
    """The values of positions 0 … length - 1: a copy, [C, Hkv, Dh] float16 or float32, C = length."""
    subtiles = _subtiles(pool, pages, length)
    numbers = pool.values[layer, subtiles].transpose(0, 2, 1, 3)  # [subtiles, Hkv, 16, Dh] → [subtiles, 16, Hkv, Dh]
    return _flat(numbers, pool.value_scales[layer, subtiles], length)


def _subtiles(pool: KVPool, pages: Sequence[int] | Ints, length: int) -> npt.NDArray[np.int64]:
    """Where in the pool the sequence's sub-tiles lie, in the order of its positions."""
    numbers = np.arange(-(-length // SUBTILE))
    per_page = pool.page_length // SUBTILE
    table = np.asarray(pages, np.int64)
    found: npt.NDArray[np.int64] = table[numbers // per_page] * per_page + numbers % per_page
    return found


def _flat(numbers: npt.NDArray[Any], scales: npt.NDArray[np.float32], length: int) -> npt.NDArray[Any]:
    """Numbers [subtiles, 16, Hkv, Dh], scales [subtiles, Hkv, 16] or none → [length, Hkv, Dh]."""
    scaled = numbers * scales.swapaxes(1, 2)[..., None] if scales.size else numbers
    return scaled.reshape(-1, *numbers.shape[2:])[:length]
