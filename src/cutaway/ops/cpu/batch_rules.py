"""What a batch must be so that the compiled forward stays within its arrays, as compiled code: it is run in every step.

In: a batch, the limits. Out: which rule it breaks.
"""

from typing import Final

from cutaway.ops.cpu.arrays import Batch, Ints
from cutaway.ops.cpu.attention import RUN_LENGTH
from cutaway.ops.kernel_cache import inner_jit, root_jit

NO_RULE: Final = -1
STEP_SIZE, ROW_COUNTS, OUTPUT_COUNT, OUTPUT_ROWS, IDS, POSITIONS, SEQUENCES = 0, 1, 2, 3, 4, 5, 6
RUN_LENGTHS, COVERAGE, PAGES, CONSECUTIVE = 7, 8, 9, 10
"""The rules, in the order in which they are looked at; ``model.batch.check_batch`` says what each is."""


@root_jit
def broken_rule(
    batch: Batch, max_tokens: int, max_outputs: int, context: int, vocab_size: int, num_pages: int, page_length: int
) -> int:
    """The first rule that the batch breaks, ``NO_RULE`` if it breaks none."""
    tokens, positions, sequences, runs = batch.tokens, batch.positions, batch.sequences, batch.runs
    pages, output_rows = batch.block_tables, batch.output_rows
    T = tokens.shape[0]
    if not 1 <= T <= max_tokens:
        return STEP_SIZE
    if positions.shape[0] != T or sequences.shape[0] != T:
        return ROW_COUNTS
    if output_rows.shape[0] > max_outputs:
        return OUTPUT_COUNT
    if not _all_within(output_rows, T):
        return OUTPUT_ROWS
    if not _all_within(tokens, vocab_size):
        return IDS
    if not _all_within(positions, context):
        return POSITIONS
    if not _all_within(sequences, pages.shape[0]):
        return SEQUENCES
    for run in range(runs.shape[0]):
        if not 1 <= runs[run, 1] <= RUN_LENGTH:
            return RUN_LENGTHS
    covered = 0
    for run in range(runs.shape[0]):
        if runs[run, 0] != covered:
            return COVERAGE
        covered += runs[run, 1]
    if covered != T:
        return COVERAGE
    sequence, known = -1, 0
    for token in range(T):
        if sequences[token] != sequence:  # how many of its pages, from the first on, are the pool's
            sequence, known = sequences[token], 0
            while known < pages.shape[1] and 0 <= pages[sequence, known] < num_pages:
                known += 1
        if positions[token] // page_length >= known:
            return PAGES
    for run in range(runs.shape[0]):
        first, count = runs[run, 0], runs[run, 1]
        if positions[first] % RUN_LENGTH + count > RUN_LENGTH:
            return CONSECUTIVE
        for token in range(first + 1, first + count):
            if positions[token] != positions[token - 1] + 1 or sequences[token] != sequences[token - 1]:
                return CONSECUTIVE
    return NO_RULE


@inner_jit
def _all_within(numbers: Ints, end: int) -> bool:
    """Whether all are in 0 … end - 1."""
    for index in range(numbers.shape[0]):  # noqa: SIM110 (compiled: a generator would be slow to compile)
        if not 0 <= numbers[index] < end:
            return False
    return True
