"""A prompt's embedding: its last hidden states, pooled to one vector of length 1.

In: rows of hidden states, as the prompt's chunks are computed. Out: a vector; the same bits however the prompt was cut.
"""

import math
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from cutaway.errors import CutawayError, InvalidRequestError
from cutaway.ops.cpu.arrays import Floats
from cutaway.sampling.params_checks import shown

Pooling: TypeAlias = Literal["last", "mean"]
"""The last token's state, which has seen all others; or the mean over all tokens."""

POOLINGS: Final[tuple[Pooling, ...]] = get_args(Pooling)
DEFAULT_POOLING: Final[Pooling] = "last"


def check_pooling(pooling: object) -> Pooling:
    """One of ``POOLINGS``, or InvalidRequestError."""
    for each in POOLINGS:
        if pooling == each:
            return each
    raise InvalidRequestError(
        f"pooling is {shown(pooling)}; it must be one of {', '.join(POOLINGS)}. Leave it out for {DEFAULT_POOLING}.",
        "pooling",
    )


class Pool:
    """The states so far, of one prompt. They are added in float64, in the order of positions, one after the other."""

    def __init__(self, pooling: Pooling) -> None:
        self.pooling = pooling
        self._sum: npt.NDArray[np.float64] | None = None
        self._count = 0  # of the prompt's first tokens: positions below it are in the sum

    def add(self, start: int, hidden: Floats) -> None:
        """hidden: [n, D], of positions start, start + 1, …; those that have been added before are computed again."""
        if self.pooling == "last":
            self._sum = hidden[-1].astype(np.float64)
            return
        for row in hidden[max(self._count - start, 0) :]:
            self._sum = row.astype(np.float64) if self._sum is None else self._sum + row
            self._count += 1

    def vector(self) -> Floats:
        """[D] float32, divided by its length, which is the square root of a sum rounded once. The mean has the
        direction of the sum.
        """
        assert self._sum is not None, "no state was added"
        length = math.sqrt(math.fsum(each * each for each in self._sum.tolist()))
        if not 0 < length < math.inf:
            raise CutawayError(
                f"the prompt's hidden state has the length {length}, and no direction. The model file may be damaged; "
                "fetch it again."
            )
        return (self._sum / length).astype(np.float32)
