"""A ragged batch: the tokens of one step, of any number of sequences, as flat arrays.

In: for each sequence a piece (where it starts, its token ids) and its pages. Out: the ``Batch`` that the forward reads.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from cutaway.model.shapes import Limits
from cutaway.ops.cpu import batch_rules as rules
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


def make_batch(pieces: Sequence[Piece], spare_pages: int = 0) -> Batch:
    """The batch of these pieces, in this order. Logits come out in the order of the pieces, then of their tokens.

    spare_pages: columns of the block tables behind the longest, for pages to come.
    """
    tokens: list[int] = []
    positions: list[int] = []
    sequences: list[int] = []
    runs: list[tuple[int, int]] = []
    output_rows: list[int] = []
    most_pages = max(len(piece.pages) for piece in pieces)
    block_tables = np.full((len(pieces), most_pages + spare_pages), NO_PAGE, np.int32)
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
    max_tokens, max_outputs, context = limits.max_tokens, limits.max_outputs, limits.context
    broken = rules.broken_rule(batch, max_tokens, max_outputs, context, vocab_size, num_pages, page_length)
    if broken == rules.NO_RULE:
        return
    wanted = {
        rules.STEP_SIZE: f"1 to {max_tokens} tokens",
        rules.ROW_COUNTS: "a position and a sequence for each token",
        rules.OUTPUT_COUNT: f"at most {max_outputs} rows of logits",
        rules.OUTPUT_ROWS: "rows of logits among the tokens",
        rules.IDS: f"ids below {vocab_size}",
        rules.POSITIONS: f"positions below {context}",
        rules.SEQUENCES: "sequences among the block tables",
        rules.RUN_LENGTHS: f"runs of 1 to {RUN_LENGTH} tokens",
        rules.COVERAGE: "runs that cover the tokens in order",
        rules.PAGES: f"pages below {num_pages} up to each token's position",
        rules.CONSECUTIVE: "runs of consecutive positions of one sequence, within a multiple of the run's length",
    }
    raise ValueError(f"the batch breaks a rule of the forward: {wanted[broken]}. Build it with make_batch.")
