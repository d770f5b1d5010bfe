"""Weights in tiles: the layout in which the kernels read each block format, and the kernels themselves.

In: a matrix in a file's block format. Out: tiles of 16 rows, exact to the file's values, and for each format the
kernels that multiply a tile with one or several rows of activations and that decode a single row.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cutaway.ops.cpu.tiles.floats import BF16, F16, F32
from cutaway.ops.cpu.tiles.iq4_nl import IQ4_NL
from cutaway.ops.cpu.tiles.iq4_xs import IQ4_XS
from cutaway.ops.cpu.tiles.layout import ROW_BLOCK, WEIGHT, TileFormat, repack
from cutaway.ops.cpu.tiles.q2_k import Q2_K
from cutaway.ops.cpu.tiles.q3_k import Q3_K
from cutaway.ops.cpu.tiles.q4_0 import Q4_0
from cutaway.ops.cpu.tiles.q4_1 import Q4_1
from cutaway.ops.cpu.tiles.q4_k import Q4_K
from cutaway.ops.cpu.tiles.q5_0 import Q5_0
from cutaway.ops.cpu.tiles.q5_1 import Q5_1
from cutaway.ops.cpu.tiles.q5_k import Q5_K
from cutaway.ops.cpu.tiles.q6_k import Q6_K
from cutaway.ops.cpu.tiles.q8_0 import Q8_0

TILE_FORMATS: Final[Mapping[str, TileFormat]] = MappingProxyType(
    {
        each.name: each
        for each in (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, F32, F16, BF16)
    }
)
"""By the name of the block type in the file."""

__all__ = ["ROW_BLOCK", "TILE_FORMATS", "WEIGHT", "TileFormat", "repack"]
