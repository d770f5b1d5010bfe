"""What the model would say if it ended after an earlier layer (nostalgebraist 2020, "the logit lens").

In: the residual stream of one token, embedded and after each layer. Out: for each the likeliest next tokens. It is the
forward's own end, its output norm and head, applied to rows that are not from the last layer. For the last layer the
result is the model's; for the others it is a way of looking, since nothing in training asked for it.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cutaway.audit.walk.vectors import largest, log_softmax
from cutaway.engine.runner import ModelRunner
from cutaway.memory.workspace import allocate_workspace
from cutaway.model.batch import Piece, make_batch
from cutaway.model.forward import rebind
from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.threads import ThreadTeam, float_environment
from cutaway.tokenizer.tokenizer import Tokenizer

GUESSES: Final = 5


@dataclass(frozen=True)
class Guess:
    """A token and its probability."""

    id: int
    piece: str
    probability: float


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


def guesses_at(runner: ModelRunner, tokenizer: Tokenizer, rows: Floats) -> list[tuple[Guess, ...]]:
    """The likeliest next tokens after each of the residual rows [N, D], the likeliest first."""
    found = []
    for logits in end_of_forward(runner, rows):
        probabilities = np.exp(log_softmax(logits))
        found.append(
            tuple(Guess(i, tokenizer.piece(i), float(probabilities[i])) for i in largest(probabilities, GUESSES))
        )
    return found
