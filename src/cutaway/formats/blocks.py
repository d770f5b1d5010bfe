"""Block formats: how the weights of a tensor are laid out as bytes, and the float32 values that they mean.

A row is a sequence of blocks of ``block_size`` elements, each stored in ``bytes_per_block`` bytes. In: the
bytes of rows, ``[..., bytes] uint8``. Out: their values, ``[..., elements] float32``. Source of the layouts:
the block structures of GGML (``ggml-common.h``); all numbers are little-endian.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from cutaway.errors import ModelFileError

Bytes = npt.NDArray[np.uint8]
Float32 = npt.NDArray[np.float32]


def _f32(blocks: Bytes) -> Float32:
    """``x = value``. Layout: one float32.  ``blocks: [n, 4]`` → ``[n, 1]``."""
    return blocks.view("<f4")


def _f16(blocks: Bytes) -> Float32:
    """``x = value``. Layout: one float16.  ``blocks: [n, 2]`` → ``[n, 1]``."""
    return blocks.view("<f2").astype(np.float32)


def _bf16(blocks: Bytes) -> Float32:
    """``x = value``. Layout: the upper two bytes of a float32.  ``blocks: [n, 2]`` → ``[n, 1]``."""
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """``[n, 16]`` → ``[n, 32]``: the low nibbles are elements 0 to 15, the high nibbles elements 16 to 31."""
    return np.concatenate([packed & 0x0F, packed >> 4], axis=-1)


def _fifth_bits(packed: Bytes) -> Bytes:
    """``[n, 4]`` → ``[n, 32]``: bit ``i`` of the 32, lowest first, moved to where a nibble's fifth bit is."""
    bits: Bytes = np.unpackbits(packed, axis=-1, bitorder="little")
    return np.left_shift(bits, 4, dtype=np.uint8)


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


def _q4_0(blocks: Bytes) -> Float32:
    """``x[i] = d · (q[i] - 8)``, ``q`` in 0…15.  ``blocks: [n, 18]`` → ``[n, 32]``.

    Layout: ``d`` float16 in bytes 0 and 1; byte ``2 + i`` holds ``q[i]`` in its low and ``q[16 + i]`` in its
    high nibble, ``i`` in 0…15.
    """
    d = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    q = _nibbles(blocks[:, 2:18]).astype(np.float32) - np.float32(8)
    x: Float32 = d * q
    return x


def _q4_1(blocks: Bytes) -> Float32:
    """``x[i] = d · q[i] + m``, rounded to float32 after the product and after the sum, ``q`` in 0…15.

    ``blocks: [n, 20]`` → ``[n, 32]``. Layout: ``d`` float16 in bytes 0 and 1, ``m`` float16 in bytes 2 and 3;
    byte ``4 + i`` holds ``q[i]`` in its low and ``q[16 + i]`` in its high nibble, ``i`` in 0…15.
    """
    d = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    m = blocks[:, 2:4].copy().view("<f2").astype(np.float32)
    q = _nibbles(blocks[:, 4:20]).astype(np.float32)
    x: Float32 = d * q + m
    return x


def _q5_0(blocks: Bytes) -> Float32:
    """``x[i] = d · (q[i] - 16)``, ``q`` in 0…31.  ``blocks: [n, 22]`` → ``[n, 32]``.

    Layout: ``d`` float16 in bytes 0 and 1; bit ``i`` of bytes 2 to 5 is the fifth bit of ``q[i]``; byte ``6 + i``
    holds the others of ``q[i]`` in its low and of ``q[16 + i]`` in its high nibble, ``i`` in 0…15.
    """
    d = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    q = _nibbles(blocks[:, 6:22]) | _fifth_bits(blocks[:, 2:6])
    x: Float32 = d * (q.astype(np.float32) - np.float32(16))
    return x


def _q5_1(blocks: Bytes) -> Float32:
    """``x[i] = d · q[i] + m``, rounded to float32 after the product and after the sum, ``q`` in 0…31.

    ``blocks: [n, 24]`` → ``[n, 32]``. Layout: ``d`` float16 in bytes 0 and 1, ``m`` float16 in bytes 2 and 3; the
    rest as the rest of Q5_0.
    """
    d = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    m = blocks[:, 2:4].copy().view("<f2").astype(np.float32)
    q = _nibbles(blocks[:, 8:24]) | _fifth_bits(blocks[:, 4:8])
    x: Float32 = d * q.astype(np.float32) + m
    return x


def _q8_0(blocks: Bytes) -> Float32:
    """``x[i] = q[i] · d``, ``q`` in -128…127.  ``blocks: [n, 34]`` → ``[n, 32]``.

    Layout: ``d`` float16 in bytes 0 and 1; ``q[i]`` int8 in byte ``2 + i``, ``i`` in 0…31.
    """
    d = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    q = blocks[:, 2:34].view(np.int8).astype(np.float32)
    x: Float32 = q * d
    return x


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


def _q4_k(blocks: Bytes) -> Float32:
    """Eight parts of 32, each with a scale and a minimum; see ``_scaled_parts``.  ``[n, 144]`` → ``[n, 256]``.

    Layout: 16 bytes of scales, then the nibbles ``q``.
    """
    return _scaled_parts(blocks[:, 0:16], _paired_nibbles(blocks[:, 16:144]))


def _q5_k(blocks: Bytes) -> Float32:
    """As Q4_K, with a fifth bit of ``q``.  ``blocks: [n, 176]`` → ``[n, 256]``.

    Layout: 16 bytes of scales, 32 bytes of fifth bits (bit ``j`` of byte ``i`` belongs to ``q[32 j + i]``), nibbles.
    """
    bits = np.unpackbits(blocks[:, 16:48], axis=-1, bitorder="little").reshape(-1, 32, 8)
    fifth = bits.transpose(0, 2, 1).reshape(-1, 256) << 4
    return _scaled_parts(blocks[:, 0:16], _paired_nibbles(blocks[:, 48:176]) | fifth)


def _q6_k(blocks: Bytes) -> Float32:
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


@dataclass(frozen=True)
class BlockType:
    """A block format: ``block_size`` elements of a row in ``bytes_per_block`` bytes.

    ``definition`` maps blocks ``[n, bytes_per_block] uint8`` to ``[n, block_size] float32``. It is ``None``
    for formats of which only the size is known: their tensors can be located, not read.
    """

    name: str
    ggml_type: int
    block_size: int
    bytes_per_block: int
    definition: Callable[[Bytes], Float32] | None = None


# Numbers 4, 5, 31 to 33 and 36 to 38 belonged to formats that GGML has withdrawn.
BLOCK_TYPES: Mapping[int, BlockType] = MappingProxyType(
    {
        block_type.ggml_type: block_type
        for block_type in (
            BlockType("F32", 0, 1, 4, _f32),
            BlockType("F16", 1, 1, 2, _f16),
            BlockType("Q4_0", 2, 32, 18, _q4_0),
            BlockType("Q4_1", 3, 32, 20, _q4_1),
            BlockType("Q5_0", 6, 32, 22, _q5_0),
            BlockType("Q5_1", 7, 32, 24, _q5_1),
            BlockType("Q8_0", 8, 32, 34, _q8_0),
            BlockType("Q8_1", 9, 32, 36),
            BlockType("Q2_K", 10, 256, 84),
            BlockType("Q3_K", 11, 256, 110),
            BlockType("Q4_K", 12, 256, 144, _q4_k),
            BlockType("Q5_K", 13, 256, 176, _q5_k),
            BlockType("Q6_K", 14, 256, 210, _q6_k),
            BlockType("Q8_K", 15, 256, 292),
            BlockType("IQ2_XXS", 16, 256, 66),
            BlockType("IQ2_XS", 17, 256, 74),
            BlockType("IQ3_XXS", 18, 256, 98),
            BlockType("IQ1_S", 19, 256, 50),
            BlockType("IQ4_NL", 20, 32, 18),
            BlockType("IQ3_S", 21, 256, 110),
            BlockType("IQ2_S", 22, 256, 82),
            BlockType("IQ4_XS", 23, 256, 136),
            BlockType("I8", 24, 1, 1),
            BlockType("I16", 25, 1, 2),
            BlockType("I32", 26, 1, 4),
            BlockType("I64", 27, 1, 8),
            BlockType("F64", 28, 1, 8),
            BlockType("IQ1_M", 29, 256, 56),
            BlockType("BF16", 30, 1, 2, _bf16),
            BlockType("TQ1_0", 34, 256, 54),
            BlockType("TQ2_0", 35, 256, 66),
            BlockType("MXFP4", 39, 32, 17),
            BlockType("NVFP4", 40, 64, 36),
            BlockType("Q1_0", 41, 128, 18),
            BlockType("Q2_0", 42, 64, 18),
        )
    }
)


BY_NAME: Mapping[str, BlockType] = MappingProxyType({known.name: known for known in BLOCK_TYPES.values()})


def dequantize(block_type: BlockType, raw: Bytes) -> Float32:
    """Rows of ``B`` blocks: ``[..., B · bytes_per_block] uint8`` → ``[..., B · block_size] float32``.

    Infinite and NaN scales are carried through as IEEE 754 arithmetic has it. Raises ``ModelFileError`` for a
    format without a definition and ``ValueError`` when ``raw`` isn't rows of whole blocks.
    """
    if block_type.definition is None:
        supported = ", ".join(known.name for known in BLOCK_TYPES.values() if known.definition)
        raise ModelFileError(
            f"block format {block_type.name} cannot be read; supported are {supported}. "
            "Use a file of the same model in one of these formats."
        )
    if raw.dtype != np.uint8 or raw.ndim == 0 or raw.shape[-1] % block_type.bytes_per_block:
        raise ValueError(
            f"raw is {raw.dtype} {list(raw.shape)}; {block_type.name} needs uint8 rows "
            f"whose length is a multiple of {block_type.bytes_per_block} bytes"
        )
    n_blocks = raw.shape[-1] // block_type.bytes_per_block
    blocks = np.ascontiguousarray(raw).reshape(-1, block_type.bytes_per_block)
    with np.errstate(invalid="ignore", over="ignore"):
        values = block_type.definition(blocks)
    return values.reshape(*raw.shape[:-1], n_blocks * block_type.block_size)
