"""An answer computed again, open: the rows from which its tokens were chosen, as they pass through the layers.

In: a runner, the ids of prompt and answer. Out: chunks of rows: the residual stream, what attention looked at, and the
logits, which are the answer's own to the bit, since a token's result depends on nothing but its sequence. So all
tokens of the answer go through together, and the engine's own pages and buffers stay as they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cutaway.audit.explain.attention import Looked, LookedRows
from cutaway.audit.layer_progress import Told, nobody, telling
from cutaway.audit.lens import lens_bytes
from cutaway.audit.taps.attention_rows import attention_rows, prepare_attention_rows
from cutaway.engine.runner import ModelRunner
from cutaway.memory.kv_cache import KVPool, allocate_kv_pool, position_bytes
from cutaway.memory.workspace import allocate_workspace, workspace_bytes
from cutaway.model.batch import Piece, make_batch
from cutaway.model.forward import forward_compiled, rebind
from cutaway.model.records import Workspace
from cutaway.ops.cpu.arrays import Batch, Floats
from cutaway.ops.cpu.kv_tiles import SUBTILE
from cutaway.ops.cpu.threads import ThreadTeam, float_environment

CHUNK: Final = 64  # rows that are open at a time: what is kept of them is some hundred megabytes at most
MOST_AT_ONCE: Final = 1_000_000  # attention probabilities in memory; a row's own may be more
BYTES_OF_WEIGHT: Final = 48  # of each: its score, three float64 on the way, the order of all

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class OpenRows:
    """Consecutive rows, which have been run open."""

    start: int  # position of the first
    residual: Floats  # [L + 1, T, D]: embedded, then after each layer
    looked: list[Looked]  # of each row
    logits: Floats  # [T, V]


def replay_bytes(runner: ModelRunner, length: int, answer: int, kept: int) -> int:
    """Memory that an explanation takes beside the engine's. length: positions that will be computed, of which so many
    are open, for the answer; kept: positions of each head's attention.
    """
    config, rows = runner.config, min(CHUNK, answer)
    heads = config.num_layers * config.num_heads
    pool = position_bytes(config, runner.kv_dtype) * SUBTILE * -(-length // SUBTILE)
    closed = workspace_bytes({**runner.dimensions, "T": min(runner.max_step_tokens, length), "O": 1})
    opened = workspace_bytes({**runner.dimensions, "T": rows, "O": rows, "n": 1})
    streams = 4 * rows * ((config.num_layers + 1) * config.width + runner.vocab_size)
    weights = BYTES_OF_WEIGHT * max(MOST_AT_ONCE, config.num_heads * length) + 8 * rows * length
    lens = lens_bytes(runner, rows * (config.num_layers + 1))
    return pool + max(closed, opened + streams + max(weights, lens)) + 8 * answer * heads * kept


class Replay:
    """One sequence in a pool and buffers of its own: the engine may go on meanwhile, and waits for the team at most."""

    def __init__(self, runner: ModelRunner, length: int) -> None:
        """length: positions that will be computed."""
        prepare_attention_rows(runner)
        self._runner = runner
        self._num_pages = -(-length // SUBTILE)
        self.pool = allocate_kv_pool(runner.config, self._num_pages, SUBTILE, runner.kv_dtype)
        self._pages = list(range(self._num_pages))

    def compute(self, ids: Sequence[int]) -> None:
        """Closed: the first tokens, whose keys and values are needed and nothing else."""
        runner = self._runner
        size = min(runner.max_step_tokens, len(ids))
        work = allocate_workspace({**runner.dimensions, "T": size, "O": 1}) if size else None
        for start in range(0, len(ids), size or 1):
            batch = make_batch([Piece(start, ids[start : start + size], self._pages)])
            runner.team.run(forward_compiled, runner.loaded.record, batch, self.pool.record, work)

    def open_rows(self, start: int, ids: Sequence[int], kept: int, told: Told = nobody) -> Iterator[OpenRows]:
        """Open: the tokens from position ``start`` on, chunk by chunk. kept: positions of each head's attention. told:
        how far it is, at each layer.

        Raises ComputationError where the derived attention is not the engine's, to the bit.
        """
        runner, config = self._runner, self._runner.config
        size = min(CHUNK, len(ids))
        work = allocate_workspace({**runner.dimensions, "T": size, "O": size, "n": 1})
        alone = ThreadTeam(1)
        for first in range(0, len(ids), size):
            tokens = ids[first : first + size]
            batch = make_batch([Piece(start + first, tokens, self._pages, outputs=len(tokens))])
            tap = _Rows(runner, work, self.pool, batch, LookedRows(config, start + first, len(tokens), kept))
            heard = telling(tap, told, first, first + len(tokens), len(ids), config.num_layers)
            with float_environment():
                rebind({"tap": heard})(alone.members()[0], runner.loaded.record, batch, self.pool.record, work)
            logits = np.array(work.logits[: len(tokens), : runner.vocab_size])
            yield OpenRows(start + first, tap.residual, tap.looked.looked(), logits)


class _Rows:
    """The tap of one chunk."""

    def __init__(self, runner: ModelRunner, work: Workspace, pool: KVPool, batch: Batch, looked: LookedRows) -> None:
        self._runner, self._work, self._pool, self._batch = runner, work, pool, batch
        config = runner.config
        self._at_once = max(1, MOST_AT_ONCE // (config.num_heads * (int(batch.positions[-1]) + 1)))
        self.residual = np.zeros((config.num_layers + 1, len(batch.tokens), config.width), np.float32)
        self.looked = looked

    def __call__(self, team: Any, name: str, layer: int, array: Array) -> None:
        """Keep what is wanted of an operation."""
        if name == "add_positions":
            self.residual[0] = array
        elif name == "attention":
            for first in range(0, len(array), self._at_once):
                rows = slice(first, min(len(array), first + self._at_once))
                places = np.arange(rows.start, rows.stop)
                found = attention_rows(self._runner, self._work, self._pool, self._batch, layer, places)
                self.looked.add(layer, rows, found.weights())
        elif name == "ffn_residual":
            self.residual[layer + 1] = array
