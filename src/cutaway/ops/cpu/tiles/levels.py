"""What IQ4_NL and IQ4_XS share: weights of 4 bits that stand for 16 levels, looked up in a table.

The dot product wants unsigned bytes, so the table holds level + 128, and 128 · Σ a is taken off the sum.
"""

from typing import Any, Final

from cutaway.formats.blocks_of_32 import IQ4_LEVELS
from cutaway.ops.kernel_cache import inlined
from cutaway.ops.simd import (
    dot_u8,
    high_nibbles,
    load_uint8,
    look_up_bytes,
    low_nibbles,
    splat_16_bytes,
    splat_uint8,
    store_uint8,
    sub_bytes,
)

_TABLE: Final = bytes(level + 128 for level in IQ4_LEVELS)
LOW: Final = int.from_bytes(_TABLE[:8], "little", signed=True)
HIGH: Final = int.from_bytes(_TABLE[8:], "little", signed=True)


@inlined
def level_of(nibble: int) -> int:
    """The level that a weight's 4 bits stand for."""
    eight = LOW if nibble < 8 else HIGH
    return (eight >> (8 * (nibble % 8)) & 255) - 128


@inlined
def dot_levels(products: Any, nibbles: int, q: int, q_stride: int) -> Any:
    """products[r, n] + Σ_k (level[n, k] + 128) · q[r, k] over 32 weights; products: int32 rows."""
    table = splat_16_bytes(LOW, HIGH)
    for group in range(4):
        pairs = load_uint8(nibbles + 64 * group)
        products = dot_u8(products, look_up_bytes(table, low_nibbles(pairs)), q + 4 * group, q_stride)
        products = dot_u8(products, look_up_bytes(table, high_nibbles(pairs)), q + 16 + 4 * group, q_stride)
    return products


@inlined
def expand_levels(nibbles: int, panel: int) -> None:
    """The levels of 32 weights as signed bytes into a panel's groups."""
    table, offsets = splat_16_bytes(LOW, HIGH), splat_uint8(128)
    for group in range(4):
        pairs = load_uint8(nibbles + 64 * group)
        store_uint8(panel + 64 * group, sub_bytes(look_up_bytes(table, low_nibbles(pairs)), offsets))
        store_uint8(panel + 256 + 64 * group, sub_bytes(look_up_bytes(table, high_nibbles(pairs)), offsets))
