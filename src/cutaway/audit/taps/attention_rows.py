"""Attention of single tokens, derived: the engine goes tile by tile and never has the scores of all positions.

In: what the step's operations have left: rotated queries, the cache's keys and values, attention's result. Out: scores
and weights. From the scores the result is computed again, in the engine's order of tiles, and must have the same bits.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.engine.runner import ModelRunner
from cutaway.errors import ComputationError
from cutaway.memory.kv_cache import KVPool
from cutaway.model.batch import Piece, make_batch
from cutaway.model.records import Workspace
from cutaway.ops.cpu.arrays import Batch, Floats
from cutaway.ops.cpu.attention import TILE
from cutaway.ops.cpu.attention_scores import attend_scores, attention_scores
from cutaway.ops.cpu.threads import ThreadTeam, float_environment

Places = npt.NDArray[np.int64]


class AttentionRows(NamedTuple):
    """Scores [k, H, C] of k tokens, float32, C columns for the positions up to the last one's."""

    scores: Floats

    def weights(self) -> Floats:
        """softmax of the scores, computed in float64: [k, H, C] float32. Each row sums to 1."""
        exact = self.scores.astype(np.float64)
        powers = np.exp(exact - exact.max(axis=2, keepdims=True))
        found: Floats = (powers / powers.sum(axis=2, keepdims=True)).astype(np.float32)
        return found


def attention_rows(
    runner: ModelRunner, work: Workspace, pool: KVPool, batch: Batch, layer: int, rows: Places
) -> AttentionRows:
    """Of these tokens of the step that is being run open, behind its attention in this layer. work, pool: those that
    the step runs in, the runner's or others.

    Raises ComputationError if the result that follows from the scores has other bits than the engine's.
    """
    config = runner.config
    heads = config.num_heads, config.num_kv_heads, config.head_dim
    window, scale, cap = config.windows[layer], runner.loaded.record.attention_scale, runner.loaded.record.attention_cap
    some = batch._replace(positions=batch.positions[rows], sequences=batch.sequences[rows])
    length = int(some.positions.max()) + 1
    scores = np.full((len(rows), config.num_heads, -(-length // TILE) * TILE), -np.inf, np.float32)
    again = np.empty((len(rows), config.num_heads * config.head_dim), np.float32)
    member = ThreadTeam(1).members()[0]
    with float_environment():
        kv = pool.record
        attention_scores(member, work.qkv[rows], some, kv, layer, *heads, window, scale, cap, work.scratch, scores)
        attend_scores(member, scores, some, kv, layer, *heads, window, work.scratch, again)
    wrong = int((again.view(np.uint32) != work.attended[rows].view(np.uint32)).sum())
    if wrong:
        raise ComputationError(
            f"the derived attention of layer {layer} is wrong: {wrong:,} of {again.size:,} numbers that follow from "
            "its scores differ from the engine's. Please report this, with the model and the prompt."
        )
    return AttentionRows(scores[:, :, :length])


def prepare_attention_rows(runner: ModelRunner) -> None:
    """Compile both operations, or find them in the cache: not amid a step, for which others wait."""
    config, work, record = runner.config, runner.workspace, runner.loaded.record
    heads = config.num_heads, config.num_kv_heads, config.head_dim
    batch = make_batch([Piece(0, [0], [0])])
    member, scores = ThreadTeam(1).members()[0], np.zeros((1, config.num_heads, TILE), np.float32)
    window, scale, cap = config.windows[0], record.attention_scale, record.attention_cap
    kv = runner.kv.record
    scoring, attending = attention_scores, attend_scores
    scoring.prepare(  # type: ignore[attr-defined]
        member, work.qkv[:1], batch, kv, 0, *heads, window, scale, cap, work.scratch, scores
    )
    attending.prepare(  # type: ignore[attr-defined]
        member, scores, batch, kv, 0, *heads, window, work.scratch, work.attended[:1]
    )
