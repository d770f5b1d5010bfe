"""A ragged batch: the tokens of one step, of any number of sequences, as flat arrays.

In: for each sequence a piece (where it starts, its token ids) and its pages. Out: the ``Batch`` that the forward reads.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from cutaway.model.shapes import Limits
from cutaway.ops.cpu.arrays import Batch, Ints
from cutaway.ops.cpu.attention import RUN_LENGTH

NO_PAGE: Final = -1  # in a block table, behind a sequence's last page


class Piece(NamedTuple):
    """Consecutive tokens of one sequence that go through the forward together: a prompt chunk, or one new token."""

    start: int  # position of the first
    tokens: Sequence[int]
    pages: Sequence[int] | Ints  # the sequence's block table, up to the last position at least
    outputs: int = 1  # how many of the last tokens' logits are wanted


def runs_of(first: int, start: int, count: int) -> list[tuple[int, int]]:
    """Cut ``count`` tokens from position ``start`` at multiples of RUN_LENGTH; (first token's row, number of tokens)
    each.
    """
    runs, done = [], 0
    while done < count:
        length = min(count - done, RUN_LENGTH - (start + done) % RUN_LENGTH)
        runs.append((first + done, length))
        done += length
    return runs


def make_batch(pieces: Sequence[Piece]) -> Batch:
    """The batch of these pieces, in this order. Logits come out in the order of the pieces, then of their tokens."""
    tokens: list[int] = []
    positions: list[int] = []
    sequences: list[int] = []
    runs: list[tuple[int, int]] = []
    output_rows: list[int] = []
    block_tables = np.full((len(pieces), max(len(piece.pages) for piece in pieces)), NO_PAGE, np.int32)
    for number, piece in enumerate(pieces):
        count = len(piece.tokens)
        if not 0 <= piece.outputs <= count or count == 0 or piece.start < 0:
            raise ValueError(
                f"piece {number} has {count} tokens from position {piece.start} and {piece.outputs} outputs; it needs "
                "1 token at least, a position of 0 at least, and no more outputs than tokens"
            )
        runs += runs_of(len(tokens), piece.start, count)
        tokens += piece.tokens
        positions += range(piece.start, piece.start + count)
        sequences += [number] * count
        output_rows += range(len(tokens) - piece.outputs, len(tokens))
        block_tables[number, : len(piece.pages)] = piece.pages
    return Batch(
        tokens=np.array(tokens, np.int32),
        positions=np.array(positions, np.int32),
        sequences=np.array(sequences, np.int32),
        runs=np.array(runs, np.int32).reshape(-1, 2),
        block_tables=block_tables,
        output_rows=np.array(output_rows, np.int32),
    )


def check_batch(batch: Batch, limits: Limits, vocab_size: int, num_pages: int, page_length: int) -> None:
    """Refuse, with a ValueError, what would make the compiled forward read or write outside its arrays.

    The forward checks nothing. Every token needs an id of the vocabulary and a position within the context, every
    page up to it must be one of the pool's, and the runs must cover the tokens in order.
    """
    T = len(batch.tokens)
    first, count = batch.runs[:, 0], batch.runs[:, 1]
    within_run = np.ones(T, bool)
    if T and first.size and first.min() >= 0 and first.max() < T:
        within_run[first] = False
    pages = batch.block_tables
    # For each sequence, how many pages from the first on are the pool's.
    known = np.logical_and.accumulate((pages >= 0) & (pages < num_pages), axis=1).sum(axis=1)
    rules = {
        f"1 to {limits.max_tokens} tokens": 1 <= T <= limits.max_tokens,
        "a position and a sequence for each token": len(batch.positions) == T == len(batch.sequences),
        f"at most {limits.max_outputs} rows of logits": len(batch.output_rows) <= limits.max_outputs,
        "rows of logits among the tokens": _all_within(batch.output_rows, T),
        f"ids below {vocab_size}": _all_within(batch.tokens, vocab_size),
        f"positions below {limits.context}": _all_within(batch.positions, limits.context),
        "sequences among the block tables": _all_within(batch.sequences, len(pages)),
        f"runs of 1 to {RUN_LENGTH} tokens": _all_within(count - 1, RUN_LENGTH),
        "runs that cover the tokens in order": np.array_equal(np.append(first, T), np.append(0, np.cumsum(count))),
    }
    if all(rules.values()):
        rules = {
            f"pages below {num_pages} up to each token's position": bool(
                (batch.positions // page_length < known[batch.sequences]).all()
            ),
            "runs of consecutive positions of one sequence, within a multiple of the run's length": bool(
                (np.diff(batch.positions)[within_run[1:]] == 1).all()
                and (np.diff(batch.sequences)[within_run[1:]] == 0).all()
                and (batch.positions[first] % RUN_LENGTH + count <= RUN_LENGTH).all()
            ),
        }
    for rule, holds in rules.items():
        if not holds:
            raise ValueError(f"the batch breaks a rule of the forward: {rule}. Build it with make_batch.")


def _all_within(numbers: Ints, end: int) -> bool:
    """Whether all are in 0 … end - 1."""
    return numbers.size == 0 or bool(numbers.min() >= 0 and numbers.max() < end)
