"""Keys and values of single positions, as the KV cache keeps them: its own numbers, and their scales apart.

In: a pool, which of its arrays, a layer, a sequence's block table, positions. Out: rows.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from cutaway.memory.kv_cache import KVPool
from cutaway.ops.cpu.arrays import Ints
from cutaway.ops.cpu.kv_tiles import SUBTILE


def cache_rows(pool: KVPool, name: str, layer: int, pages: Ints, positions: Ints) -> npt.NDArray[Any]:
    """name: "kv.keys", "kv.values" ([k, Hkv, Dh] of the cache's type), "kv.key_scales" or "kv.value_scales" ([k, Hkv]
    float32).
    """
    per_page = pool.page_length // SUBTILE
    subtiles = positions // SUBTILE
    places = pages[subtiles // per_page].astype(np.int64) * per_page + subtiles % per_page
    slots = positions % SUBTILE
    part = name.partition(".")[2]
    array = getattr(pool, part)[layer]  # [S, Hkv, …], a slot last, but for values
    found: npt.NDArray[Any] = array[places, :, slots] if part == "values" else array[places, ..., slots]
    return found
