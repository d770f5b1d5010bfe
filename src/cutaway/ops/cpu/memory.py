"""One block of memory for everything that a step streams through: huge pages where the system has them.

In: how many bytes. Out: an arena that hands out aligned pieces of it. The mapping is private (a shared one gets no
huge pages) and anonymous; huge pages save the address translations that would otherwise bound the streaming speed.
"""

import mmap
from typing import Any, Final

import numpy as np

from cutaway.errors import CapacityError

HUGE_PAGE: Final = 2 << 20
ALIGNMENT: Final = 64


class Arena:
    """A block of ``size`` bytes, given out from front to back. The pieces keep the block alive."""

    def __init__(self, size: int) -> None:
        try:
            self._map = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise CapacityError(
                f"{size:,} bytes of memory were refused by the system ({error.strerror}). Use a smaller model or "
                "context, or free memory."
            ) from error
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        whole = np.frombuffer(self._map, np.uint8)
        start = -whole.ctypes.data % HUGE_PAGE
        self._bytes = whole[start : start + size]
        self.size = size
        self.used = 0

    def take(self, size: int) -> "np.ndarray[Any, np.dtype[np.uint8]]":
        """The next ``size`` bytes, aligned to 64: uint8 [size], zeros until written."""
        piece = self._bytes[self.used : self.used + size]
        assert piece.size == size, f"arena of {self.size} bytes holds {self.used}, asked for {size} more"
        self.used += aligned(size)
        return piece


def aligned(size: int) -> int:
    """``size`` rounded up to the alignment of an arena's pieces."""
    return -(-size // ALIGNMENT) * ALIGNMENT
