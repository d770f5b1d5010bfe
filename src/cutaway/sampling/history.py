"""What a row's adjustments depend on beside the request: the tokens before it, and the tokens that it may not become.

In: ids as arrays. Out: a ``History``, one for each step.
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


EMPTY_HISTORY: Final = History(NO_IDS, NO_IDS, NO_IDS)
