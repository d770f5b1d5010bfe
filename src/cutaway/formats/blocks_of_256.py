"""Blocks of 256 weights, the K formats and IQ4_XS: the values that their bytes mean.

In: blocks, ``[n, bytes_per_block] uint8``. Out: their values, ``[n, 256] float32``. The scales of parts of 16 or 32
weights are whole numbers, times a float16 for the block; these products are exact. Source of the layouts: the block
structures of GGML (``ggml-common.h``); all numbers are little-endian.
"""

import numpy as np

from cutaway.formats.blocks_of_32 import IQ4_LEVELS, Bytes, Float32, nibbles


def _bit_pairs(packed: Bytes) -> Bytes:
    """``[n, 64]`` → ``[n, 256]``: bits ``2 j`` and the next of byte ``32 h + i`` are element ``128 h + 32 j + i``."""
    runs = packed.reshape(-1, 2, 1, 32)
    return np.concatenate([runs >> shift & 3 for shift in (0, 2, 4, 6)], axis=2).reshape(-1, 256)


def q2_k(blocks: Bytes) -> Float32:
    """``x[16 j + i] = (d · scale[j]) · q[16 j + i] - dmin · minimum[j]``, ``q`` in 0…3.  ``[n, 84]`` → ``[n, 256]``.

    Only the difference rounds. Layout: 16 bytes with ``scale[j]`` in the low and ``minimum[j]`` in the high nibble of
    byte ``j``; 64 bytes of ``q`` (``_bit_pairs``); ``d`` float16, ``dmin`` float16.
    """
    d = blocks[:, 80:82].copy().view("<f2").astype(np.float32)
    dmin = blocks[:, 82:84].copy().view("<f2").astype(np.float32)
    scale = d * (blocks[:, 0:16] & 0x0F).astype(np.float32)
    minimum = dmin * (blocks[:, 0:16] >> 4).astype(np.float32)
    q = _bit_pairs(blocks[:, 16:80]).reshape(-1, 16, 16).astype(np.float32)
    x: Float32 = scale[:, :, None] * q - minimum[:, :, None]
    return x.reshape(-1, 256)


def q3_k(blocks: Bytes) -> Float32:
    """``x[16 j + i] = (d · (scale[j] - 32)) · (q[16 j + i] - 4)``, ``scale`` in 0…63, ``q`` in 0…7: exact.

    ``blocks: [n, 110]`` → ``[n, 256]``. Layout: 32 bytes of third bits (bit ``j`` of byte ``i`` belongs to
    ``q[32 j + i]``); 64 bytes of the lower two (``_bit_pairs``); 12 bytes of scales; ``d`` float16. Of the scales,
    byte ``j`` of the first eight holds the low 4 bits of ``scale[j]`` in its low and of ``scale[8 + j]`` in its high
    nibble; bits ``2 k`` and ``2 k + 1`` of byte ``j`` of the last four are the upper 2 bits of ``scale[4 k + j]``.
    """
    bits = np.unpackbits(blocks[:, 0:32], axis=-1, bitorder="little").reshape(-1, 32, 8)
    third = bits.transpose(0, 2, 1).reshape(-1, 256)
    q = (_bit_pairs(blocks[:, 32:96]) | third << 2).reshape(-1, 16, 16).astype(np.float32) - np.float32(4)
    low = np.concatenate([blocks[:, 96:104] & 0x0F, blocks[:, 96:104] >> 4], axis=-1)
    upper = np.concatenate([blocks[:, 104:108] >> shift & 3 for shift in (0, 2, 4, 6)], axis=-1)
    scale = (low | upper << 4).astype(np.float32) - np.float32(32)
    d = blocks[:, 108:110].copy().view("<f2").astype(np.float32)
    x: Float32 = (d * scale)[:, :, None] * q
    return x.reshape(-1, 256)


def _six_bit_scales(packed: Bytes) -> tuple[Float32, Float32]:
    """``[n, 12]`` → ``[n, 8]`` scales and ``[n, 8]`` minima, whole numbers in 0…63.

    Byte ``j`` of the first four holds scale ``j`` in its low 6 bits, byte ``4 + j`` minimum ``j``, byte ``8 + j`` the
    low 4 bits of scale ``4 + j`` and, above them, of minimum ``4 + j``. The upper 2 bits of these two stand at the top
    of bytes ``j`` and ``4 + j``.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6) << 4], axis=-1)
    minima = np.concatenate([second & 63, (third >> 4) | (second >> 6) << 4], axis=-1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _scaled_parts(head: Bytes, q: Bytes) -> Float32:
    """``x[32 j + i] = (d · scale[j]) · q[32 j + i] - dmin · minimum[j]``, rounded to float32 after each operation.

    ``q: [n, 256]``. ``head: [n, 16]``: ``d`` float16, ``dmin`` float16, 12 bytes of scales and minima. The products
    are exact, so that only the difference rounds.
    """
    d = head[:, 0:2].copy().view("<f2").astype(np.float32)
    dmin = head[:, 2:4].copy().view("<f2").astype(np.float32)
    scales, minima = _six_bit_scales(head[:, 4:16])
    scale, minimum = (d * scales)[:, :, None], (dmin * minima)[:, :, None]
    x: Float32 = scale * q.reshape(-1, 8, 32).astype(np.float32) - minimum
    return x.reshape(-1, 256)


def _paired_nibbles(packed: Bytes) -> Bytes:
    """``[n, 128]`` → ``[n, 256]``: byte ``32 j + i`` holds elements ``64 j + i`` (low) and ``64 j + 32 + i``."""
    runs = packed.reshape(-1, 4, 1, 32)
    return np.concatenate([runs & 0x0F, runs >> 4], axis=2).reshape(-1, 256)


def q4_k(blocks: Bytes) -> Float32:
    """Eight parts of 32, each with a scale and a minimum; see ``_scaled_parts``.  ``[n, 144]`` → ``[n, 256]``.

    Layout: 16 bytes of scales, then the nibbles ``q``.
    """
    return _scaled_parts(blocks[:, 0:16], _paired_nibbles(blocks[:, 16:144]))


def q5_k(blocks: Bytes) -> Float32:
    """As Q4_K, with a fifth bit of ``q``.  ``blocks: [n, 176]`` → ``[n, 256]``.

    Layout: 16 bytes of scales, 32 bytes of fifth bits (bit ``j`` of byte ``i`` belongs to ``q[32 j + i]``), nibbles.
    """
    bits = np.unpackbits(blocks[:, 16:48], axis=-1, bitorder="little").reshape(-1, 32, 8)
    fifth = bits.transpose(0, 2, 1).reshape(-1, 256) << 4
    return _scaled_parts(blocks[:, 0:16], _paired_nibbles(blocks[:, 48:176]) | fifth)


def q6_k(blocks: Bytes) -> Float32:
    """``x[16 j + i] = (d · scale[j]) · (q[16 j + i] - 32)``, ``q`` in 0…63: exact.  ``[n, 210]`` → ``[n, 256]``.

    Layout of each half of 128 elements: the low 4 bits in 64 bytes, of which byte ``i`` holds ``q[i]`` in its low and
    ``q[64 + i]`` in its high nibble; the upper 2 bits in 32 bytes, of which byte ``i`` holds those of ``q[i]``,
    ``q[32 + i]``, ``q[64 + i]`` and ``q[96 + i]``, lowest first. A block is the low bits of both halves, the upper
    bits of both, ``scale`` int8 in 16 bytes, ``d`` float16.
    """
    nibbles, pairs = blocks[:, 0:128].reshape(-1, 2, 1, 64), blocks[:, 128:192].reshape(-1, 2, 1, 32)
    low = np.concatenate([nibbles & 0x0F, nibbles >> 4], axis=2)
    upper = np.concatenate([pairs >> shift & 3 for shift in (0, 2, 4, 6)], axis=2)
    q = (low.reshape(-1, 256) | upper.reshape(-1, 256) << 4).reshape(-1, 16, 16).astype(np.float32) - np.float32(32)
    scale = blocks[:, 192:208].view(np.int8).astype(np.float32)
    d = blocks[:, 208:210].copy().view("<f2").astype(np.float32)
    x: Float32 = (d * scale)[:, :, None] * q
    return x.reshape(-1, 256)


def iq4_xs(blocks: Bytes) -> Float32:
    """``x[32 j + i] = (d · (scale[j] - 32)) · IQ4_LEVELS[q[32 j + i]]``, ``scale`` in 0…63, ``q`` in 0…15.

    ``blocks: [n, 136]`` → ``[n, 256]``. Layout: ``d`` float16; 16 bits of which ``2 j`` and ``2 j + 1`` are the upper
    2 bits of ``scale[j]``; 4 bytes with the low 4 bits, those of ``scale[2 j]`` in the low and of ``scale[2 j + 1]``
    in the high nibble of byte ``j``; then the nibbles of each 32 weights in 16 bytes, as in Q4_0.
    """
    d = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    upper = blocks[:, 2:4].copy().view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = np.stack([blocks[:, 4:8] & 0x0F, blocks[:, 4:8] >> 4], axis=-1).reshape(-1, 8)
    scale = (low | upper << 4).astype(np.float32) - np.float32(32)
    q = nibbles(blocks[:, 8:136].reshape(-1, 16)).reshape(-1, 8, 32)
    x: Float32 = (d * scale)[:, :, None] * np.array(IQ4_LEVELS, np.float32)[q]
    return x.reshape(-1, 256)
