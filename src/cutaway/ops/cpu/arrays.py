"""Names for the arrays that kernels take, so that signatures can be read. Shapes stand in the docstrings."""

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from cutaway.ops.arguments import kept

Floats: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int32]
Bytes: TypeAlias = npt.NDArray[np.int8]


ROW_GROUP: Final = 16  # rows of activations whose scales of a block stand side by side
SCALE_STRIDE: Final = 4  # bytes from a row's scale to the next row's, within a group
GROUP_STRIDE: Final = SCALE_STRIDE * ROW_GROUP  # … from a block's to the next block's


class Activation(NamedTuple):
    """Rows of activations in int8, quantised in blocks of 32, as ``matmul`` reads them.

    x[t, k] ≈ s · q[t, k] with s = scale[t // 16, k // 32, t % 16]: a kernel that multiplies several rows finds their
    scales side by side. The sums serve formats whose weights have an offset. Rows behind the step's hold anything:
    panels read up to 31 of them, and what comes of it is dropped.
    """

    q: Bytes  # [T + 31, K] int8, -127 … 127
    scale: Floats  # [A, K/32, 16] float32, A groups of 16 rows
    block_sum: Ints  # [A, K/32, 16] int32, Σ q over the block
    scaled_sum: Floats  # [A, K/32, 16] float32, scale · Σ q


@kept
class Batch(NamedTuple):
    """The work of one step: T tokens of R sequences, flat and ragged. Prompt chunks and single tokens mix.

    A run is up to ``RUN_LENGTH`` consecutive tokens of one sequence whose positions share position // RUN_LENGTH.
    """

    tokens: Ints  # [T] ids
    positions: Ints  # [T]
    sequences: Ints  # [T] row of block_tables
    runs: Ints  # [N, 2] first token, number of tokens
    block_tables: Ints  # [R, P] pages of each sequence
    output_rows: Ints  # [O] tokens whose logits are wanted


class AttentionScratch(NamedTuple):
    """Room for attention's intermediate results; each member of the team has its own part."""

    queries: Floats  # [n, Q, Dh] the rows of one work item, scaled
    scores: Floats  # [n, Q, 64] of one KV tile
    stack: Floats  # [n, depth, Q, Dh + 32] partials waiting to be merged
    shared: Floats  # [C, Q, Dh + 32] partials of chunks, when a context is split over the team
