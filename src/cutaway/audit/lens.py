"""The logit lens (nostalgebraist 2020): what the model would say if it ended after an earlier layer.

In: the residual streams of tokens, embedded and after each layer, and what was chosen from them. Out: for each token
and layer the likeliest next tokens, and how likely the chosen one was. It is the forward's own end, its output norm and
head, applied to rows that are not from the last layer: behind the last one stand the logits themselves, to the bit; for
the others it is a way of looking, since nothing in training asked for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cutaway.audit.walk.vectors import largest
from cutaway.engine.runner import ModelRunner
from cutaway.memory.workspace import allocate_workspace, workspace_bytes
from cutaway.model.batch import Piece, make_batch
from cutaway.model.forward import rebind
from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.threads import ThreadTeam, float_environment

AT_ONCE: Final = 64  # rows whose logits are in memory


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


def lens_bytes(runner: ModelRunner, rows: int) -> int:
    """Memory that the lens takes beside the engine's while it looks at so many residual rows."""
    return workspace_bytes(_dimensions(runner, min(rows, AT_ONCE))) + 2 * 8 * runner.vocab_size


def _dimensions(runner: ModelRunner, rows: int) -> dict[str, int]:
    return {**runner.dimensions, "T": rows, "O": rows, "n": 1}


def lens_of(
    runner: ModelRunner, piece: Callable[[int], str], residual: Floats, chosen: Sequence[int], count: int
) -> list[tuple[LensRow, ...]]:
    """For each token, each layer. residual: [L + 1, T, D]; chosen: T ids; count: guesses of each; piece: shows a
    token.
    """
    num_streams, num_tokens, width = residual.shape
    flat = residual.swapaxes(0, 1).reshape(-1, width)  # a token's rows follow one another
    rows = [
        _see(piece, number % num_streams - 1, logits, chosen[number // num_streams], count)
        for first in range(0, len(flat), AT_ONCE)
        for number, logits in enumerate(end_of_forward(runner, flat[first : first + AT_ONCE]), first)
    ]
    return [tuple(rows[token * num_streams : (token + 1) * num_streams]) for token in range(num_tokens)]


def _see(piece: Callable[[int], str], layer: int, logits: Floats, token: int, count: int) -> LensRow:
    powers = np.exp(logits.astype(np.float64) - float(logits.max()))
    total = float(powers.sum())
    return LensRow(
        layer,
        tuple(Guess(i, piece(i), float(powers[i]) / total) for i in largest(logits, count)),
        float(powers[token]) / total,
        1 + int(np.count_nonzero(logits > logits[token])),
    )


def end_of_forward(runner: ModelRunner, rows: Floats) -> Floats:
    """The logits [N, V] of residual rows [N, D]: the forward, with these rows for its embedding and no layers."""
    count = len(rows)
    work = allocate_workspace(_dimensions(runner, count))
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
