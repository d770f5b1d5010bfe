"""What formats with weights of 4 and 5 bits share: a block of 32 weights as groups of nibbles, and their fifth bits.

In the tile, a row's nibbles are 16 bytes, its fifth bits 4 bytes, both in groups of 64 bytes for 16 rows:

    byte i, in 0 … 15, of the nibbles:    low = weight i,  high = weight 16 + i
    bit b of byte i, in 0 … 3, of the fifth bits:          weight 4 b + i

so that group g of the nibbles needs the lowest bit of each byte of the fifth bits for its low nibbles, and bit 4 for
its high ones, after these have moved g places.
"""

from typing import Any

from cutaway.ops.kernel_cache import inlined
from cutaway.ops.simd import (
    and_bytes,
    dot_u7,
    high_nibbles,
    load_uint8,
    load_uint32_scalar,
    low_nibbles,
    or_bytes,
    shift_left_bytes,
    shift_right_bytes,
    splat_uint8,
    store_uint8,
    store_uint32_scalar,
    sub_bytes,
)


@inlined
def pack_fifth_bits(bits: int, target: int) -> None:
    """32 bits, of which bit k belongs to weight k, into a row's 4 bytes at ``target``."""
    word = 0
    for b in range(8):
        # A product with three shifts spreads four bits: bit i comes to byte i.
        word |= ((bits >> (4 * b) & 15) * 0x00204081 & 0x01010101) << b
    store_uint32_scalar(target, word)


@inlined
def pack_fifth_bits_of_bytes(source: int, bit: int, target: int) -> None:
    """One bit of each of 32 bytes, of which byte k belongs to weight k, into a row's 4 bytes at ``target``."""
    word = 0
    for b in range(8):  # four bytes at once
        word |= (load_uint32_scalar(source + 4 * b) >> bit & 0x01010101) << b
    store_uint32_scalar(target, word)


@inlined
def nibble_of(byte: int, k: int) -> int:
    """Weight k, from the byte k % 16 of the row's nibbles."""
    return byte >> 4 if k >= 16 else byte & 15


@inlined
def fifth_bit_of(byte: int, k: int) -> int:
    """The fifth bit of weight k in its place, 0 or 16, from the byte k % 4 of the row's fifth bits."""
    return (byte >> (k // 4) & 1) << 4


@inlined
def dot_nibbles(products: Any, nibbles: int, q: int, q_stride: int) -> Any:
    """products[r, n] + Σ_k w[n, k] · q[r, k] over 32 weights of 4 bits; products: int32 rows."""
    for group in range(4):
        pairs = load_uint8(nibbles + 64 * group)
        products = dot_u7(products, low_nibbles(pairs), q + 4 * group, q_stride)
        products = dot_u7(products, high_nibbles(pairs), q + 16 + 4 * group, q_stride)
    return products


@inlined
def _low_five_bits(pairs: Any, fifth: Any) -> Any:
    """Bytes of 5 bits: the low nibbles of a group, below the lowest bit of each byte of ``fifth``."""
    return or_bytes(low_nibbles(pairs), and_bytes(shift_left_bytes(fifth, splat_uint8(4)), splat_uint8(16)))


@inlined
def _high_five_bits(pairs: Any, fifth: Any) -> Any:
    """Bytes of 5 bits: the high nibbles of a group, below bit 4 of each byte of ``fifth``."""
    return or_bytes(high_nibbles(pairs), and_bytes(fifth, splat_uint8(16)))


@inlined
def dot_five_bits(products: Any, nibbles: int, fifth_bits: int, q: int, q_stride: int) -> Any:
    """products[r, n] + Σ_k w[n, k] · q[r, k] over 32 weights of 5 bits; products: int32 rows."""
    fifth = load_uint8(fifth_bits)
    for group in range(4):
        pairs = load_uint8(nibbles + 64 * group)
        products = dot_u7(products, _low_five_bits(pairs, fifth), q + 4 * group, q_stride)
        products = dot_u7(products, _high_five_bits(pairs, fifth), q + 16 + 4 * group, q_stride)
        fifth = shift_right_bytes(fifth, splat_uint8(1))
    return products


@inlined
def expand_nibbles(nibbles: int, offset: int, panel: int) -> None:
    """32 weights of 4 bits, less the offset, as signed bytes into a panel's groups."""
    offsets = splat_uint8(offset)
    for group in range(4):
        pairs = load_uint8(nibbles + 64 * group)
        store_uint8(panel + 64 * group, sub_bytes(low_nibbles(pairs), offsets))
        store_uint8(panel + 256 + 64 * group, sub_bytes(high_nibbles(pairs), offsets))


@inlined
def expand_five_bits(nibbles: int, fifth_bits: int, offset: int, panel: int) -> None:
    """32 weights of 5 bits, less the offset, as signed bytes into a panel's groups."""
    fifth, offsets = load_uint8(fifth_bits), splat_uint8(offset)
    for group in range(4):
        pairs = load_uint8(nibbles + 64 * group)
        store_uint8(panel + 64 * group, sub_bytes(_low_five_bits(pairs, fifth), offsets))
        store_uint8(panel + 256 + 64 * group, sub_bytes(_high_five_bits(pairs, fifth), offsets))
        fifth = shift_right_bytes(fifth, splat_uint8(1))
