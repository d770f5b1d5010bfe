"""A tensor of a file: a name, a shape, a block type, and its bytes where they lie in the mapped file.

In: what a reader found in the file. Out: rows of blocks, read when they are asked for.
"""

from dataclasses import dataclass
from mmap import MADV_DONTNEED, PAGESIZE, mmap

import numpy as np
import numpy.typing as npt

from cutaway.formats.blocks import BlockType
from cutaway.formats.blocks_of_32 import Bytes


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """A tensor of the file.

    ``shape`` is in NumPy's order, rows first: GGUF's ``ne`` reversed. ``stored`` is a read-only view of the file,
    ``[*shape[:-1], bytes_per_row] uint8``. It starts ``offset`` bytes after the start of the file.

    Where ``order`` is given, row ``i`` of the tensor is row ``order[i]`` of the stored ones. Where ``transposed``, the
    stored rows are the tensor's columns; elements are then numbers, not blocks.
    """

    name: str
    shape: tuple[int, ...]
    block_type: BlockType
    offset: int
    stored: Bytes
    mapping: mmap | None = None  # the file that ``stored`` looks into; none for numbers in memory
    order: npt.NDArray[np.int64] | None = None  # [N]
    transposed: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in the file."""
        return self.stored.nbytes

    @property
    def data(self) -> Bytes:
        """All bytes: the view of the file, or a copy in the tensor's own order."""
        return self.rows(0, self.shape[0]) if self.transposed or self.order is not None else self.stored

    def rows(self, first: int, end: int) -> Bytes:
        """Rows first … end - 1 of a matrix, ``[n, bytes_per_row]``, contiguous; a copy where the file has them
        otherwise.
        """
        if self.transposed:
            columns = self.stored.reshape(self.shape[1], self.shape[0], -1)[:, first:end]
            return np.ascontiguousarray(columns.swapaxes(0, 1)).reshape(columns.shape[1], -1)
        return self.stored[first:end] if self.order is None else self.stored[self.order[first:end]]

    def drop_pages(self, first: int = 0, end: int | None = None) -> None:
        """Give the memory that caches the bytes of rows first … end - 1 back; touching them again reads the file again.

        Where the file has the rows otherwise, those of a part are not given back, all rows are.
        """
        rows = self.shape[0] if self.shape else 1
        whole = first == 0 and end in (None, rows)
        if self.mapping is None or not (whole or (self.order is None and not self.transposed)):
            return
        row_bytes = self.nbytes // rows
        start = -(-(self.offset + first * row_bytes) // PAGESIZE) * PAGESIZE  # pages shared with a neighbour stay
        stop = (self.offset + (rows if end is None else end) * row_bytes) // PAGESIZE * PAGESIZE
        if stop > start:
            self.mapping.madvise(MADV_DONTNEED, start, stop - start)
