"""An answer computed again, open: the rows from which its tokens were chosen, as they pass through the layers.

In: a runner, the ids of prompt and answer. Out: chunks of rows: the residual stream, queries, attention's results, and
the logits, which are the answer's own to the bit, since a token's result depends on nothing but its sequence. So all
tokens of the answer go through together, and the engine's own pages and buffers stay as they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cutaway.engine.runner import ModelRunner
from cutaway.memory.kv_cache import allocate_kv_pool
from cutaway.memory.kv_read import read_keys, read_values
from cutaway.memory.workspace import allocate_workspace
from cutaway.model.batch import Piece, make_batch
from cutaway.model.forward import forward_compiled, rebind
from cutaway.ops.cpu.arrays import Floats
from cutaway.ops.cpu.kv_tiles import SUBTILE
from cutaway.ops.cpu.threads import ThreadTeam, float_environment

CHUNK: Final = 64  # rows that are open at a time: what is kept of them is some hundred megabytes at most

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class OpenRows:
    """Consecutive rows, which have been run open."""

    start: int  # position of the first
    residual: Floats  # [L + 1, T, D]: embedded, then after each layer
    queries: Floats  # [L, T, H, Dh], rotated
    attended: Floats  # [L, T, H, Dh]
    logits: Floats  # [T, V]


class Replay:
    """One sequence in a pool and buffers of its own: the engine may go on meanwhile, and waits for the team at most."""

    def __init__(self, runner: ModelRunner, length: int) -> None:
        """length: positions that will be computed."""
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

    def open_rows(self, start: int, ids: Sequence[int]) -> Iterator[OpenRows]:
        """Open: the tokens from position ``start`` on, chunk by chunk."""
        runner, config = self._runner, self._runner.config
        H, Dh, L = config.num_heads, config.head_dim, config.num_layers
        size = min(CHUNK, len(ids))
        work = allocate_workspace({**runner.dimensions, "T": size, "O": size, "n": 1})
        alone = ThreadTeam(1)
        for first in range(0, len(ids), size):
            tokens = ids[first : first + size]
            T = len(tokens)
            residual = np.zeros((L + 1, T, config.width), np.float32)
            queries, attended = np.zeros((2, L, T, H, Dh), np.float32)

            def tap(
                team: Any,
                name: str,
                layer: int,
                array: Array,
                residual: Floats = residual,
                queries: Floats = queries,
                attended: Floats = attended,
            ) -> None:
                if name == "add_positions":
                    residual[0] = array
                elif name == "rope":
                    queries[layer] = array[:, : H * Dh].reshape(-1, H, Dh)
                elif name == "attention":
                    attended[layer] = array.reshape(-1, H, Dh)
                elif name == "ffn_residual":
                    residual[layer + 1] = array

            batch = make_batch([Piece(start + first, tokens, self._pages, outputs=T)])
            with float_environment():
                rebind({"tap": tap})(alone.members()[0], runner.loaded.record, batch, self.pool.record, work)
            logits = np.array(work.logits[:T, : runner.vocab_size])
            yield OpenRows(start + first, residual, queries, attended, logits)

    def keys(self, layer: int, length: int) -> Array:
        """Of the first positions, as attention takes them: [C, Hkv, Dh]."""
        return read_keys(self.pool, layer, self._pages, length)

    def values(self, layer: int, length: int) -> Array:
        """The same of the values."""
        return read_values(self.pool, layer, self._pages, length)
