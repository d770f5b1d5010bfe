"""The logit lens (nostalgebraist 2020): what the model would say if it ended after an earlier layer.

In: the residual streams of tokens, embedded and after each layer, and what was chosen from them. Out: for each token
and layer the likeliest next tokens, and how likely the chosen one was. It is the forward's own end, its output norm and
head, applied to rows that are not from the last layer: behind the last one stand the logits themselves, to the bit; for
the others it is a way of looking, since nothing in training asked for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutaway.audit.walk.vectors import largest
from cutaway.engine.runner import ModelRunner
from cutaway.memory.workspace import allocate_workspace
from cutaway.model.batch import Piece, make_batch
from cutaway.model.forward import rebind
from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.threads import ThreadTeam, float_environment
from cutaway.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Guess:
    """A token and its probability."""

    id: int
    piece: str
    probability: float


@dataclass(frozen=True)
class LensRow:
    """One layer's say on one token; layer -1 is the embedding."""

    layer: int
    guesses: tuple[Guess, ...]  # the likeliest, the likeliest first
    chosen: float  # probability of the token that was chosen
    rank: int  # 1 + how many are likelier than it


def lens_of(
    runner: ModelRunner, tokenizer: Tokenizer, residual: Floats, chosen: Sequence[int], count: int
) -> list[tuple[LensRow, ...]]:
    """For each token, each layer. residual: [L + 1, T, D]; chosen: T ids; count: guesses of each."""
    rows: list[list[LensRow]] = [[] for _ in chosen]
    for place, stream in enumerate(residual):
        for row, logits, token in zip(rows, end_of_forward(runner, stream), chosen, strict=True):
            row.append(_see(tokenizer, place - 1, logits, token, count))
    return [tuple(row) for row in rows]


def _see(tokenizer: Tokenizer, layer: int, logits: Floats, token: int, count: int) -> LensRow:
    powers = np.exp(logits.astype(np.float64) - float(logits.max()))
    total = float(powers.sum())
    return LensRow(
        layer,
        tuple(Guess(i, tokenizer.piece(i), float(powers[i]) / total) for i in largest(logits, count)),
        float(powers[token]) / total,
        1 + int(np.count_nonzero(logits > logits[token])),
    )


def end_of_forward(runner: ModelRunner, rows: Floats) -> Floats:
    """The logits [N, V] of residual rows [N, D]: the forward, with these rows for its embedding and no layers."""
    count = len(rows)
    work = allocate_workspace({**runner.dimensions, "T": count, "O": count, "n": 1})
    batch = make_batch([Piece(0, [0] * count, [0], outputs=count)])

    def put_rows(team: Any, position_rows: Any, positions: Any, x: Floats) -> None:
        x[:] = rows

    without_layers = runner.loaded.record._replace(num_layers=0)
    # After the embedding, whose last operation is the positions'.
    table = {"add_positions": put_rows, "tap": lambda *arguments: None}
    alone = ThreadTeam(1)
    with float_environment():
        rebind(table)(alone.members()[0], without_layers, batch, runner.kv.record, work)
    return work.logits[:, : runner.vocab_size]
