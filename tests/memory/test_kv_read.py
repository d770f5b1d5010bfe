"""Keys and values read back are those that were written, whatever pages they lie in."""

import numpy as np
import pytest

from cutaway.memory.kv_read import read_keys, read_values
from support.attention import Sizes, make_case
from support.pools import stored


@pytest.mark.parametrize("data_type", ["f16", "f32", "int8"])
@pytest.mark.parametrize("page_length", [16, 48])
def test_what_was_written_is_read(data_type: str, page_length: int) -> None:
    """Several sequences, their pages in any order; the pool's other slots hold NaN. Of int8 comes
    number · scale, rounded once to float32.
    """
    sizes = Sizes(num_heads=6, num_kv_heads=3, head_dim=32, page_length=page_length, data_type=data_type)
    lengths = [1, 15, 16, 17, 53, 131]
    case = make_case(sizes, lengths, [1] * len(lengths), seed=5)
    dtype = np.float16 if data_type == "f16" else np.float32
    for rows, pages in zip(case.rows, case.batch.block_tables, strict=True):
        heads = stored(rows.reshape(len(rows), 12, 32), data_type).astype(dtype)
        for length in {1, len(rows) // 2 + 1, len(rows)}:
            keys, values = (read(case.pool, 1, pages, length) for read in (read_keys, read_values))
            assert keys.dtype == values.dtype == dtype
            np.testing.assert_array_equal(keys, heads[:length, 6:9])
            np.testing.assert_array_equal(values, heads[:length, 9:12])


def test_a_copy_is_given() -> None:
    case = make_case(Sizes(2, 1, 16), [5], [1])
    for read, pool in ((read_keys, case.pool.keys), (read_values, case.pool.values)):
        assert not np.shares_memory(read(case.pool, 1, [0], 5), pool)
