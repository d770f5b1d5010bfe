"""What the K formats share: a block of 256 weights is 8 parts of 32, in Q4_K and Q5_K with 6-bit scales and minima.

In the file, these 12 bytes are packed as ``formats.blocks`` defines it. In the tile, each part has its scale and its
minimum as a byte for each row.
"""

from cutaway.ops.kernel_cache import inlined
from cutaway.ops.simd import load_uint32_scalar, store_uint32_scalar

PARTS = 8  # of a block


@inlined
def six_bits(plain: int, rest: int, part: int) -> int:
    """A part's scale or minimum, 0 … 63, from the file's 12 bytes taken as three words of 32 bits.

    ``plain`` is the word with the first four parts' numbers in the low 6 bits of its bytes: the first word for scales,
    the second for minima. ``rest`` has the low 4 bits of the last four parts' numbers in the low nibbles of its bytes:
    the third word for scales, shifted by a nibble for minima.
    """
    shift = 8 * (part % 4)
    byte = plain >> shift & 255
    return byte & 63 if part < 4 else rest >> shift & 15 | byte >> 6 << 4


@inlined
def pack_part_nibbles(source: int, shift: int, target: int) -> None:
    """The nibbles of a part's 32 weights into a row's groups, which begin at ``target``.

    In the file, 32 bytes hold the weights of two parts: ``shift`` is 0 for the low nibbles, 4 for the high ones.
    """
    for group in range(4):  # four bytes at once: what a shift moves into the next byte is masked off
        low = load_uint32_scalar(source + 4 * group) >> shift & 0x0F0F0F0F
        high = load_uint32_scalar(source + 16 + 4 * group) >> shift & 0x0F0F0F0F
        store_uint32_scalar(target + 64 * group, low | high << 4)
