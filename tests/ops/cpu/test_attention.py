"""Attention and the cache's writes against a slow loop in float64, around every border of its tiles. With int8 the loop
takes the numbers that the cache keeps; ``test_kv_int8`` says how far these are from what was written.
"""

import numpy as np
import numpy.typing as npt
import pytest

from cutaway.model.batch import NO_PAGE
from cutaway.ops.cpu.attention import BALANCE, MOST_SHARED
from support.attention import Sizes, attend, exact_attention, make_case
from support.bits import differing

BOUND = 3e-6
"""Relative to the greatest |output|: float32 rounding of scores, exponentials and sums (measured: at most 2e-6)."""

BORDERS = [1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000]


def check(sizes: Sizes, lengths: list[int], new: list[int], seed: int = 0, threads: int = 1) -> None:
    case = make_case(sizes, lengths, new, seed)
    exact = exact_attention(case)
    assert np.abs(attend(case, threads) - exact).max() <= BOUND * np.abs(exact).max()


@pytest.mark.parametrize("data_type", ["f16", "f32", "int8"])
@pytest.mark.parametrize("head_dim", [16, 48, 64, 80, 96, 256])
@pytest.mark.parametrize("group", [1, 2, 3, 7])
def test_head_widths_and_groups(group: int, head_dim: int, data_type: str) -> None:
    """A single new token, a few, and a prompt; two KV heads."""
    sizes = Sizes(2 * group, 2, head_dim, data_type=data_type)
    check(sizes, [71, 18, 33], [1, 3, 33], seed=group)


@pytest.mark.parametrize("length", BORDERS)
def test_one_new_token_at_any_position(length: int) -> None:
    for group, data_type in ((1, "f32"), (3, "f16"), (7, "int8")):
        check(Sizes(2 * group, 2, 32, data_type=data_type), [length], [1], seed=length)


@pytest.mark.parametrize("length", BORDERS)
def test_chunks_that_end_at_any_position(length: int) -> None:
    """Chunks of 7, of 64 and the whole, so that runs begin at every place of a tile."""
    for new in {min(length, chunk) for chunk in (7, 64, 300)}:
        for data_type in ("f16", "int8"):
            check(Sizes(3, 1, 16, data_type=data_type), [length], [new], seed=length)


@pytest.mark.parametrize("page_length", [16, 48, 1024])
def test_pages_of_any_length_in_any_order(page_length: int) -> None:
    check(Sizes(6, 2, 48, page_length=page_length), [130, 1, 49, 97], [1, 1, 49, 40], seed=page_length)


@pytest.mark.parametrize("data_type", ["f16", "int8"])
def test_page_length_and_order_change_no_bit(data_type: str) -> None:
    results = [
        attend(
            make_case(Sizes(6, 2, 48, page_length=page_length, data_type=data_type), [130, 17, 300], [1, 17, 9], seed=5)
        )
        for page_length in (16, 48, 128, 512)
    ]
    for other in results[1:]:
        assert differing(results[0], other) == 0


def test_many_sequences() -> None:
    """A ragged batch: new tokens and chunks side by side, more items than can be split."""
    rng = np.random.default_rng(6)
    lengths = rng.integers(1, 200, 23)
    new = [int(rng.integers(1, length + 1)) if i % 2 else 1 for i, length in enumerate(lengths)]
    check(Sizes(3, 1, 32), lengths.tolist(), new, threads=2)


@pytest.mark.parametrize("num_kv_heads", [1, 3])
@pytest.mark.parametrize("length", [64, 65, 257, 1000, 3000])
def test_split_over_the_team_or_not_the_bits_are_the_same(length: int, num_kv_heads: int) -> None:
    """Alone, the context is cut into chunks that are merged apart; in a crowd on one thread it is not."""
    sizes = Sizes(2 * num_kv_heads, num_kv_heads, 16)
    neighbours = BALANCE
    assert num_kv_heads < BALANCE, "alone, the case would not be split"
    assert num_kv_heads * 2 <= MOST_SHARED, "alone, the case would not be split"
    assert (neighbours + 1) * num_kv_heads >= BALANCE, "in the crowd, the case would be split"
    alone = make_case(sizes, [length], [1], seed=length)
    results = [attend(alone, threads) for threads in (1, 2, 3)]
    crowd = make_case(sizes, [length] + [5] * neighbours, [1] * (neighbours + 1), seed=length)
    results.append(attend(crowd)[:1])
    for other in results[1:]:
        assert differing(results[0], other) == 0


@pytest.mark.parametrize("data_type", ["f16", "int8"])
def test_a_token_does_not_depend_on_its_chunk(data_type: str) -> None:
    """One by one, in chunks of 7 and of 64, whole: the same bits at every position."""
    sizes = Sizes(6, 2, 48, data_type=data_type)
    length = 150
    whole = attend(make_case(sizes, [length], [length], seed=8))
    for chunk in (1, 7, 64):
        parts = []
        for end in [*range(chunk, length, chunk), length]:
            begin = (end - 1) // chunk * chunk
            case = make_case(sizes, [length], [length], seed=8)
            cut = make_case(sizes, [end], [end - begin], seed=8)
            assert differing(cut.rows[0], case.rows[0][:end]) == 0
            parts.append(attend(cut))
        assert differing(np.concatenate(parts), whole) == 0


def test_great_scores() -> None:
    """Scores in the thousands: the greatest is subtracted before the exponential; float32 keeps 7 digits of them."""
    case = make_case(Sizes(3, 1, 64, data_type="f32"), [200], [40], magnitude=20.0)
    exact, got = exact_attention(case), attend(case)
    assert np.isfinite(got).all()
    assert np.abs(got - exact).max() <= 2e-3 * np.abs(exact).max()


def test_one_key_is_copied() -> None:
    """At position 0 the weight is 1: the result is the value itself, to the last bit."""
    case = make_case(Sizes(6, 2, 16, data_type="f32"), [1], [1])
    values = case.qkv.reshape(10, 16)[8:]
    assert differing(attend(case).reshape(2, 3, 16), np.repeat(values[:, None], 3, axis=1)) == 0


@pytest.mark.parametrize("data_type", ["f16", "f32"])
def test_the_cache_holds_what_was_written_and_nothing_else(data_type: str) -> None:
    """Slot by slot, through the documented layout; rounding to float16 is NumPy's; the other layer stays NaN."""
    sizes = Sizes(3, 2, 48, page_length=48, data_type=data_type)
    case = make_case(sizes, [53, 17], [9, 17], seed=9)
    keys, values = case.pool.keys, case.pool.values  # [L, S, Hkv, Dh, 16], [L, S, Hkv, 16, Dh]
    written = np.zeros(keys.shape[1] * 16, bool)
    for sequence, rows in enumerate(case.rows):
        heads = rows.reshape(len(rows), 7, 48)
        for position in range(len(rows)):
            slot = case.batch.block_tables[sequence, position // 48] * 48 + position % 48
            written[slot] = True
            expected = heads[position].astype(keys.dtype)
            assert differing(keys[1, slot // 16, :, :, slot % 16], expected[3:5]) == 0
            assert differing(values[1, slot // 16, :, slot % 16], expected[5:7]) == 0
    assert written.sum() == 53 + 17
    by_slot = np.moveaxis(keys[1], 3, 1).reshape(len(written), -1)
    assert np.isnan(by_slot[~written]).all()
    assert np.isnan(values[1].swapaxes(1, 2).reshape(len(written), -1)[~written]).all()
    assert np.isnan(keys[0]).all()
    assert np.isnan(values[0]).all()


def test_a_wrong_bit_in_the_cache_is_seen() -> None:
    """The control: the lowest bit of the value of the only key, in float32."""
    case = make_case(Sizes(1, 1, 16, data_type="f32"), [1], [1])
    before = attend(case)
    page = case.batch.block_tables[0, 0]
    case.pool.values[1, page, 0, 0, 3:4].view(np.uint32)[:] ^= 1
    assert np.flatnonzero(attend(case) != before).tolist() == [3]


# A window


WINDOWS = [1, 2, 15, 16, 17, 63, 64, 65, 100, 128, 512]


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_of_any_width(window: int) -> None:
    """Single tokens, chunks and prompts, on both sides of the window's width; slots before it are never read."""
    for group, data_type in ((1, "f32"), (3, "f16"), (2, "int8")):
        sizes = Sizes(2 * group, 2, 32, data_type=data_type, window=window)
        check(sizes, [window, window + 1, 150, 700, 9], [1, 1, 150, 33, 3], seed=window)


@pytest.mark.parametrize(("window", "data_type"), [*((n, "f16") for n in (1, 5, 16, 37, 64, 100)), (37, "int8")])
def test_a_token_in_a_window_does_not_depend_on_its_chunk(window: int, data_type: str) -> None:
    """A run's first query reaches further back than its last: the tiles that only the first needs change no bit."""
    sizes = Sizes(6, 2, 48, window=window, data_type=data_type)
    length = 300
    whole = attend(make_case(sizes, [length], [length], seed=8))
    for chunk in (1, 3, 7, 64):
        parts = []
        for end in [*range(chunk, length, chunk), length]:
            begin = (end - 1) // chunk * chunk
            parts.append(attend(make_case(sizes, [length], [length], seed=8, step=(begin, end))))
        assert differing(np.concatenate(parts), whole) == 0


def test_a_negative_zero_stays_one() -> None:
    """A sum that underflows to -0 keeps its sign, whether or not a tile before the window was computed for a neighbour
    and merged: + 0 would take it away. Position 199 attends 130 … 199; 192, in its run, a position of the tile before.
    """
    sizes = Sizes(2, 1, 16, data_type="f32", window=70)

    def underflow(rows: npt.NDArray[np.float32]) -> None:
        """In each tile the first product is half of the least number at most; the rest are zeros."""
        rows[:, -16:] = -0.0
        rows[[130, 192], -16:] = -1e-45

    whole, alone = (
        attend(make_case(sizes, [300], [300], step=step, change=underflow)) for step in ((0, 200), (199, 200))
    )
    assert np.signbit(alone).all()
    assert not alone.any()
    assert differing(whole[199:], alone) == 0


@pytest.mark.parametrize("window", [16, 100, 512, 1000])
@pytest.mark.parametrize("length", [257, 1000, 3000])
def test_a_window_split_over_the_team_has_the_same_bits(length: int, window: int) -> None:
    sizes = Sizes(2, 1, 16, window=window)
    alone = make_case(sizes, [length], [1], seed=length)
    results = [attend(alone, threads) for threads in (1, 2, 3)]
    crowd = make_case(sizes, [length] + [5] * BALANCE, [1] * (BALANCE + 1), seed=length)
    results.append(attend(crowd)[:1])
    for other in results[1:]:
        assert differing(results[0], other) == 0


def test_what_lies_before_the_window_is_not_read() -> None:
    """Its slots hold NaN, and its whole pages are not even in the table: they may have been given back."""
    sizes = Sizes(6, 2, 48, window=50)
    kept = make_case(sizes, [300, 217], [1, 9], seed=2)
    expected = attend(kept)
    for sequence, first in ((0, 250), (1, 208 - 49)):
        for position in range(first):
            page = kept.batch.block_tables[sequence, position // 16]
            kept.pool.keys[1, page, :, :, position % 16] = np.nan
            kept.pool.values[1, page, :, position % 16] = np.nan
        kept.batch.block_tables[sequence, : first // 16] = NO_PAGE
    assert differing(attend(kept), expected) == 0


def test_a_window_as_long_as_the_context_is_none() -> None:
    lengths, new = [130, 64, 9], [1, 64, 3]
    without = attend(make_case(Sizes(6, 2, 48), lengths, new, seed=3))
    assert differing(attend(make_case(Sizes(6, 2, 48, window=130), lengths, new, seed=3)), without) == 0


# The scores' scale and cap


@pytest.mark.parametrize("cap", [0.5, 3.0, 50.0])
def test_soft_capped_scores(cap: float) -> None:
    check(Sizes(6, 2, 48, cap=cap), [130, 1, 49], [1, 1, 40], seed=1)
    check(Sizes(6, 2, 48, cap=cap, window=33), [130, 1, 49], [1, 1, 40], seed=1)


def test_a_scale_of_its_own() -> None:
    check(Sizes(4, 1, 32, scale=0.31), [130, 9], [7, 9], seed=1)
