"""What formats with a scale for each 16 weights share: a part of 32 weights is two halves, with bits in pairs.

In the tile, a half's pairs of bits are 4 bytes of a row, in one group of 64 bytes for 16 rows:

    bits 2g and 2g + 1 of byte i, in 0 … 3:    weight 4g + i of the half

so that group g of a dot product needs the lowest two bits of each byte, after these have moved 2g places.
"""

from typing import Any

from cutaway.ops.kernel_cache import inlined
from cutaway.ops.simd import (
    and_bytes,
    dot_u7,
    load_uint32_scalar,
    shift_right_bytes,
    splat_uint8,
    store_uint32_scalar,
)


@inlined
def pack_bit_pairs(source: int, shift: int, target: int) -> None:
    """The bits ``shift`` and ``shift`` + 1 of 16 bytes into a row's 4 bytes at ``target``."""
    word = 0
    for g in range(4):  # four bytes at once: what the shift moves into the next byte is masked off
        word |= (load_uint32_scalar(source + 4 * g) >> shift & 0x03030303) << (2 * g)
    store_uint32_scalar(target, word)


@inlined
def bit_pair_of(byte: int, k: int) -> int:
    """The bits of weight k, from the byte k % 4 of its half."""
    return byte >> (2 * (k % 16 // 4)) & 3


@inlined
def low_bit_pairs(pairs: Any) -> Any:
    """The lowest two bits of each byte."""
    return and_bytes(pairs, splat_uint8(3))


@inlined
def next_bit_pairs(pairs: Any) -> Any:
    """The pairs of the next group moved to where this one's were."""
    return shift_right_bytes(pairs, splat_uint8(2))


@inlined
def dot_constant(products: Any, byte: int, q: int, q_stride: int) -> Any:
    """products[r, n] + Σ_k byte · q[r, k] over the 16 weights of a half; products: int32 rows, byte at most 127."""
    for group in range(4):
        products = dot_u7(products, splat_uint8(byte), q + 4 * group, q_stride)
    return products
