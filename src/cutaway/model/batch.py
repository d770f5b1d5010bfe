"""A ragged batch: the tokens of one step, of any number of sequences, as flat arrays.

In: for each sequence a piece (where it starts, its token ids) and its pages. Out: the ``Batch`` that the forward reads.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cutaway.ops.cpu.arrays import Batch, Ints
from cutaway.ops.cpu.attention import RUN_LENGTH


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
    block_tables = np.zeros((len(pieces), max(len(piece.pages) for piece in pieces)), np.int32)
    for number, piece in enumerate(pieces):
        count = len(piece.tokens)
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
