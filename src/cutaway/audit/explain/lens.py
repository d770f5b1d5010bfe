"""The logit lens over an answer (nostalgebraist 2020): what the model would have said after each layer.

In: the residual streams of rows and the tokens that were chosen from them. Out: for each row and layer the likeliest
tokens, and how likely the chosen one was. The final norm and the head are the forward's own (``audit.walk.lens``), so
that behind the last layer stand the logits themselves, to the bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cutaway.audit.walk.lens import end_of_forward
from cutaway.audit.walk.vectors import largest
from cutaway.engine.runner import ModelRunner
from cutaway.ops.cpu.arrays import Floats

LIKELIEST: Final = 3


@dataclass(frozen=True)
class LensRow:
    """One layer's say on one token; layer -1 is the embedding."""

    layer: int
    ids: tuple[int, ...]  # the likeliest, the likeliest first
    probabilities: tuple[float, ...]
    chosen: float  # probability of the token that was chosen
    rank: int  # 1 + how many are likelier than it


def lens_of(runner: ModelRunner, residual: Floats, chosen: Sequence[int]) -> list[tuple[LensRow, ...]]:
    """For each row, each layer. residual: [L + 1, T, D]; chosen: T ids."""
    rows: list[list[LensRow]] = [[] for _ in chosen]
    for place, stream in enumerate(residual):
        for row, logits, token in zip(rows, end_of_forward(runner, stream), chosen, strict=True):
            row.append(_see(place - 1, logits, token))
    return [tuple(row) for row in rows]


def _see(layer: int, logits: Floats, token: int) -> LensRow:
    greatest = logits.max()
    total = float(np.exp(logits - greatest).sum(dtype=np.float64))
    best = largest(logits, LIKELIEST)

    def probability(i: int) -> float:
        return float(np.exp(np.float64(logits[i]) - np.float64(greatest))) / total

    return LensRow(
        layer,
        tuple(best),
        tuple(probability(i) for i in best),
        probability(token),
        1 + int(np.count_nonzero(logits > logits[token])),
    )
