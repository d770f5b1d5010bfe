"""Numbers one by one, and blocks of 32 weights: the values that their bytes mean.

In: blocks, ``[n, bytes_per_block] uint8``. Out: their values, ``[n, block_size] float32``. Source of the layouts: the
block structures of GGML (``ggml-common.h``); all numbers are little-endian.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Float32 = npt.NDArray[np.float32]

IQ4_LEVELS: Final = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""What the 16 nibbles of IQ4_NL and IQ4_XS stand for; near zero they lie closer together."""


def f32(blocks: Bytes) -> Float32:
    """``x = value``. Layout: one float32.  ``blocks: [n, 4]`` → ``[n, 1]``."""
    return blocks.view("<f4")


def f16(blocks: Bytes) -> Float32:
    """``x = value``. Layout: one float16.  ``blocks: [n, 2]`` → ``[n, 1]``."""
    return blocks.view("<f2").astype(np.float32)


def bf16(blocks: Bytes) -> Float32:
    """``x = value``. Layout: the upper two bytes of a float32.  ``blocks: [n, 2]`` → ``[n, 1]``."""
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def nibbles(packed: Bytes) -> Bytes:
    """``[n, 16]`` → ``[n, 32]``: the low nibbles are elements 0 to 15, the high nibbles elements 16 to 31."""
    return np.concatenate([packed & 0x0F, packed >> 4], axis=-1)


def _fifth_bits(packed: Bytes) -> Bytes:
    """``[n, 4]`` → ``[n, 32]``: bit ``i`` of the 32, lowest first, moved to where a nibble's fifth bit is."""
    bits: Bytes = np.unpackbits(packed, axis=-1, bitorder="little")
    return np.left_shift(bits, 4, dtype=np.uint8)


def q4_0(blocks: Bytes) -> Float32:
    """``x[i] = d · (q[i] - 8)``, ``q`` in 0…15.  ``blocks: [n, 18]`` → ``[n, 32]``.

    Layout: ``d`` float16 in bytes 0 and 1; byte ``2 + i`` holds ``q[i]`` in its low and ``q[16 + i]`` in its
    high nibble, ``i`` in 0…15.
    """
    d = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    q = nibbles(blocks[:, 2:18]).astype(np.float32) - np.float32(8)
    x: Float32 = d * q
    return x


def q4_1(blocks: Bytes) -> Float32:
    """``x[i] = d · q[i] + m``, rounded to float32 after the product and after the sum, ``q`` in 0…15.

    ``blocks: [n, 20]`` → ``[n, 32]``. Layout: ``d`` float16 in bytes 0 and 1, ``m`` float16 in bytes 2 and 3;
    byte ``4 + i`` holds ``q[i]`` in its low and ``q[16 + i]`` in its high nibble, ``i`` in 0…15.
    """
    d = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    m = blocks[:, 2:4].copy().view("<f2").astype(np.float32)
    q = nibbles(blocks[:, 4:20]).astype(np.float32)
    x: Float32 = d * q + m
    return x


def q5_0(blocks: Bytes) -> Float32:
    """``x[i] = d · (q[i] - 16)``, ``q`` in 0…31.  ``blocks: [n, 22]`` → ``[n, 32]``.

    Layout: ``d`` float16 in bytes 0 and 1; bit ``i`` of bytes 2 to 5 is the fifth bit of ``q[i]``; byte ``6 + i``
    holds the others of ``q[i]`` in its low and of ``q[16 + i]`` in its high nibble, ``i`` in 0…15.
    """
    d = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    q = nibbles(blocks[:, 6:22]) | _fifth_bits(blocks[:, 2:6])
    x: Float32 = d * (q.astype(np.float32) - np.float32(16))
    return x


def q5_1(blocks: Bytes) -> Float32:
    """``x[i] = d · q[i] + m``, rounded to float32 after the product and after the sum, ``q`` in 0…31.

    ``blocks: [n, 24]`` → ``[n, 32]``. Layout: ``d`` float16 in bytes 0 and 1, ``m`` float16 in bytes 2 and 3; the
    rest as the rest of Q5_0.
    """
    d = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    m = blocks[:, 2:4].copy().view("<f2").astype(np.float32)
    q = nibbles(blocks[:, 8:24]) | _fifth_bits(blocks[:, 4:8])
    x: Float32 = d * q.astype(np.float32) + m
    return x


def q8_0(blocks: Bytes) -> Float32:
    """``x[i] = q[i] · d``, ``q`` in -128…127.  ``blocks: [n, 34]`` → ``[n, 32]``.

    Layout: ``d`` float16 in bytes 0 and 1; ``q[i]`` int8 in byte ``2 + i``, ``i`` in 0…31.
    """
    d = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    q = blocks[:, 2:34].view(np.int8).astype(np.float32)
    x: Float32 = q * d
    return x


def iq4_nl(blocks: Bytes) -> Float32:
    """``x[i] = d · IQ4_LEVELS[q[i]]``, ``q`` in 0…15.  ``blocks: [n, 18]`` → ``[n, 32]``.

    Layout: that of Q4_0.
    """
    d = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    levels = np.array(IQ4_LEVELS, np.float32)
    x: Float32 = d * levels[nibbles(blocks[:, 2:18])]
    return x
