"""What a row's adjustments depend on beside the request: the tokens before it, and the tokens that it may not become.

In: ids and bits as arrays. Out: a ``History``, one for each step.
"""

from typing import Final, NamedTuple

import numpy as np

from cutaway.ops.arguments import kept
from cutaway.ops.cpu.arrays import Ints

NO_IDS: Final = np.zeros(0, np.int32)


@kept
class History(NamedTuple):
    """The sequence so far. The border between prompt and output is the request's, whatever is computed again."""

    prompt_ids: Ints  # [P] int32
    output_ids: Ints  # [G] int32, the tokens generated so far
    forbidden_ids: Ints  # [B] int32, masked in this step; see ``forbidden``
    allowed_bits: Ints = NO_IDS  # [ceil(V / 32)] int32, bit i % 32 of word i // 32: whether id i is; empty: all are


EMPTY_HISTORY: Final = History(NO_IDS, NO_IDS, NO_IDS)
