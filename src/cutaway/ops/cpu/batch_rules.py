"""What a batch must be so that the compiled forward stays within its arrays, as compiled code: it is run in every step.

In: a batch, the limits. Out: which rule it breaks.
"""

from cutaway.ops.cpu.arrays import Batch, Ints
from cutaway.ops.cpu.attention import RUN_LENGTH
from cutaway.ops.kernel_cache import inner_jit, jit


@jit
def broken_rule(
    batch: Batch, max_tokens: int, max_outputs: int, context: int, vocab_size: int, num_pages: int, page_length: int
) -> int:
    """The number of the first rule of ``model.batch.check_batch`` that the batch breaks, -1 if none."""
    tokens, positions, sequences, runs = batch.tokens, batch.positions, batch.sequences, batch.runs
    pages, output_rows = batch.block_tables, batch.output_rows
    T = tokens.shape[0]
    if not 1 <= T <= max_tokens:
        return 0
    if positions.shape[0] != T or sequences.shape[0] != T:
        return 1
    if output_rows.shape[0] > max_outputs:
        return 2
    if not _all_within(output_rows, T):
        return 3
    if not _all_within(tokens, vocab_size):
        return 4
    if not _all_within(positions, context):
        return 5
    if not _all_within(sequences, pages.shape[0]):
        return 6
    for run in range(runs.shape[0]):
        if not 1 <= runs[run, 1] <= RUN_LENGTH:
            return 7
    covered = 0
    for run in range(runs.shape[0]):
        if runs[run, 0] != covered:
            return 8
        covered += runs[run, 1]
    if covered != T:
        return 8
    sequence, known = -1, 0
    for token in range(T):
        if sequences[token] != sequence:  # how many of its pages, from the first on, are the pool's
            sequence, known = sequences[token], 0
            while known < pages.shape[1] and 0 <= pages[sequence, known] < num_pages:
                known += 1
        if positions[token] // page_length >= known:
            return 9
    for run in range(runs.shape[0]):
        first, count = runs[run, 0], runs[run, 1]
        if positions[first] % RUN_LENGTH + count > RUN_LENGTH:
            return 10
        for token in range(first + 1, first + count):
            if positions[token] != positions[token - 1] + 1 or sequences[token] != sequences[token - 1]:
                return 10
    return -1


@inner_jit
def _all_within(numbers: Ints, end: int) -> bool:
    """Whether all are in 0 … end - 1."""
    for index in range(numbers.shape[0]):  # noqa: SIM110 (compiled: a generator would be slow to compile)
        if not 0 <= numbers[index] < end:
            return False
    return True
