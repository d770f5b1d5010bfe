"""A model set up to run steps: records, a pool, a workspace. What an engine does, with everything in the test's hands.

In: an open GGUF, then schedules of steps. Out: the logits at every position of every sequence.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.memory.kv_cache import KVPool, allocate_kv_pool
from cutaway.memory.workspace import allocate_workspace
from cutaway.model.batch import Piece, make_batch
from cutaway.model.forward import forward_compiled, rebind
from cutaway.model.loader import LoadedModel
from cutaway.model.records import Model, Workspace
from cutaway.model.shapes import Limits, dimensions
from cutaway.ops import reference
from support.pools import spoil
from support.teams import team_of

Forward = Callable[..., None]
Logits = dict[tuple[int, int], npt.NDArray[Any]]  # (sequence, position) → [V]


class Part(NamedTuple):
    """Tokens start … end - 1 of a sequence, in one step."""

    sequence: int
    start: int
    end: int


Step = Sequence[Part]


class Pages(NamedTuple):
    """How sequences lie in the pool."""

    length: int = 16
    order: int = 0  # seed of the order of pages
    fill: float = float("nan")  # what slots hold before they are written
    data_type: str = "f16"


def chunks(sequence: int, length: int, chunk: int) -> list[Step]:
    """A prompt in chunks, one a step."""
    return [[Part(sequence, start, min(length, start + chunk))] for start in range(0, length, chunk)]


def block_tables(lengths: Sequence[int], pages: Pages) -> tuple[list[list[int]], int]:
    """Pages for each sequence, no two the same, in a random order, and how many the pool has (two are spare)."""
    needed = [-(-length // pages.length) for length in lengths]
    order = np.random.default_rng(pages.order).permutation(sum(needed) + 2).tolist()
    tables = [order[sum(needed[:i]) : sum(needed[: i + 1])] for i in range(len(needed))]
    return tables, len(order)


def limits_for(sequences: Sequence[Sequence[int]], steps: Sequence[Step], threads: int) -> Limits:
    """What these steps need at most, rounded up so that buffers have spare rows."""
    tokens = max(sum(part.end - part.start for part in step) for step in steps) + 3
    return Limits(tokens, tokens, threads, max(len(tokens) for tokens in sequences), 1)


def run_schedule(
    loaded: LoadedModel,
    sequences: Sequence[Sequence[int]],
    steps: Sequence[Step],
    *,
    forward: Forward = forward_compiled,
    threads: int = 1,
    pages: Pages = Pages(),  # noqa: B008  (immutable)
    notes: npt.NDArray[np.int64] | None = None,
    before_step: Callable[[KVPool, Workspace], None] | None = None,
) -> Logits:
    """The logits of every token of every step. Each step takes its parts in the order given."""
    tables, num_pages = block_tables([len(tokens) for tokens in sequences], pages)
    pool = allocate_kv_pool(loaded.config, num_pages, pages.length, pages.data_type)
    spoil(pool, pages.fill)
    limits = limits_for(sequences, steps, threads)
    work = allocate_workspace(dimensions(loaded.config, limits))
    logits: Logits = {}
    with team_of(threads) as team:
        for step in steps:
            batch = make_batch([_piece(sequences, tables, part) for part in step])
            if before_step is not None:
                before_step(pool, work)
            if notes is not None:
                notes[:, 0] = 0
            team.run(forward, loaded.record, batch, pool.record, work, notes=notes)
            _collect(logits, step, work.logits[:, : loaded.config.vocab_size])
    return logits


def run_reference(
    config: Any,
    record: Model,
    sequences: Sequence[Sequence[int]],
    steps: Sequence[Step],
    operations: Mapping[str, Any] | None = None,
) -> Logits:
    """The same in float64, by definition; ``operations`` may take the place of some."""
    page_length = 16
    tables, num_pages = block_tables([len(tokens) for tokens in sequences], Pages(page_length))
    shape = (config.num_layers, num_pages * page_length, config.num_kv_heads, config.head_dim)
    kv = reference.ReferenceKV(np.full(shape, np.nan), np.full(shape, np.nan), page_length)
    work = allocate_workspace(dimensions(config, limits_for(sequences, steps, 1)), np.float64)
    forward = rebind({**reference.TABLE, **(operations or {})}, "forward_reference")
    logits: Logits = {}
    for step in steps:
        batch = make_batch([_piece(sequences, tables, part) for part in step])
        forward(None, record, batch, kv, work)
        _collect(logits, step, work.logits[:, : config.vocab_size])
    return logits


def _piece(sequences: Sequence[Sequence[int]], tables: list[list[int]], part: Part) -> Piece:
    tokens = sequences[part.sequence][part.start : part.end]
    return Piece(part.start, tokens, tables[part.sequence], outputs=len(tokens))


def _collect(logits: Logits, step: Step, rows: npt.NDArray[Any]) -> None:
    places = [(part.sequence, position) for part in step for position in range(part.start, part.end)]
    for row, place in enumerate(places):
        assert place not in logits, f"{place} was computed twice"
        logits[place] = rows[row].copy()


def log_softmax(logits: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Over the last axis, in float64."""
    x = logits.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    x -= np.log(np.exp(x).sum(axis=-1, keepdims=True))
    return x
