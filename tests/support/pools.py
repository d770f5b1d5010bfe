"""A KV pool whose slots hold what must not be read, and what numbers become in it.

In: a pool; keys or values of float32. Out: the pool, spoilt; the numbers as the cache keeps them, by definition.
"""

import numpy as np
import numpy.typing as npt

from cutaway.memory.kv_cache import KVPool


def spoil(pool: KVPool, value: float) -> None:
    """Every slot is ``value``; where numbers are integers, these are their least one, times a scale of ``value``."""
    for numbers, scales in ((pool.keys, pool.key_scales), (pool.values, pool.value_scales)):
        numbers[:] = np.iinfo(numbers.dtype).min if scales.size else value
        scales[:] = value


def as_int8(x: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """x: [..., Dh] finite float32 → the integer nearest to x · 127 / max|x|, and max|x| / 127, each step in float32.

    Where max|x| is below 2⁻¹²⁰, zeros and a scale of 0.
    """
    q = np.zeros(x.shape, np.int8)
    scales = np.zeros(x.shape[:-1], np.float32)
    for place in np.ndindex(scales.shape):
        largest = np.float32(np.abs(x[place]).max())
        if largest >= 2.0**-120:
            q[place] = np.rint(x[place] * (np.float32(127) / largest))
            scales[place] = largest / np.float32(127)
    return q, scales


def stored(x: npt.NDArray[np.float32], data_type: str) -> npt.NDArray[np.float64]:
    """Keys or values [..., Dh] as the cache keeps them."""
    if data_type == "int8":
        q, scales = as_int8(x)
        return q.astype(np.float64) * scales[..., None]
    return x.astype({"f16": np.float16, "f32": np.float32}[data_type]).astype(np.float64)
