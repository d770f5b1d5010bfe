"""What a request asks of the sampler, as compiled code takes it: numbers and arrays, made once for each request.

In: checked parameters. Out: a ``ParamsRecord``.
"""

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from cutaway.ops.arguments import kept

Ints: TypeAlias = npt.NDArray[np.int32]  # as in ops.cpu.arrays, which would load all operations
Floats: TypeAlias = npt.NDArray[np.float32]

MOST_TOP_K: Final = 2**31 - 1  # ids are int32: more tokens there never are
SMALLEST_NORMAL: Final = float(np.finfo(np.float32).tiny)
NO_LOGPROBS: Final = -1
"""Not even the token's own log-probability is wanted."""
OWN_LOGPROB: Final = -2
"""The token's own is wanted, and neither its rank nor others'."""


@kept
class ParamsRecord(NamedTuple):
    """The parameters of the declared steps. Ids have no duplicates; those of a vocabulary of V are below V."""

    bias_ids: Ints  # [N] int32, ascending
    bias_values: Floats  # [N] float32
    allowed_ids: Ints  # [A] int32; empty: all
    repetition: float  # 1: off
    presence: float  # 0: off
    frequency: float  # 0: off
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    num_logprobs: int  # how many of the likeliest are listed; or one of the two above
