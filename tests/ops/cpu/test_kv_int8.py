"""The int8 cache: the integers and scales that are written, to the bit, how far they are from what was written, and
values that are awkward to scale.
"""

from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int64

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.ops.cpu.kv_tiles import KV_FORMATS
from support.attention import AttentionCase, Sizes, attend, exact_attention, make_case
from support.bits import differing
from support.pools import as_int8

BOUND = 3e-6
"""As in ``test_attention``."""

Floats = npt.NDArray[np.float32]


def write(key: Floats, value: Floats, slot: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """The bytes of a key's and a value's sub-tile after one token is written; 0xA5 where nothing was."""
    tiles = np.full((2, 16 * key.size + 64), 0xA5, np.uint8)
    keys, values = (int(tile.ctypes.data) for tile in tiles)
    call = KV_FORMATS["int8"].write.address
    CFUNCTYPE(None, *[c_int64] * 6)(call)(key.ctypes.data, value.ctypes.data, key.size, slot, keys, values)
    return tiles[0], tiles[1]


def written(key: Floats, slot: int) -> tuple[npt.NDArray[np.int8], np.float32]:
    """The integers and the scale that a key becomes; those of the same row as a value must be the same."""
    Dh = key.size
    keys, values = write(key, key, slot)
    scales = [tile[16 * Dh :].view(np.float32)[slot] for tile in (keys, values)]
    column = keys[: 16 * Dh].view(np.int8).reshape(Dh, 16)[:, slot]
    row = values[: 16 * Dh].view(np.int8).reshape(16, Dh)[slot]
    assert np.array_equal(column, row)
    assert differing(np.array(scales[:1]), np.array(scales[1:])) == 0
    return row.copy(), scales[0]


def floats(x: list[float]) -> Floats:
    return np.array(x, np.float32)


@pytest.mark.parametrize("slot", [0, 7, 15])
@pytest.mark.parametrize("head_dim", [16, 48, 80])
def test_one_token_is_written_to_its_slot_and_nowhere_else(head_dim: int, slot: int) -> None:
    rng = np.random.default_rng(head_dim + slot)
    key, value = rng.standard_normal((2, head_dim)).astype(np.float32)
    keys, values = write(key, value, slot)
    expected = [np.full(16 * head_dim + 64, 0xA5, np.uint8) for _ in range(2)]
    for tile, x, place in ((expected[0], key, np.s_[:, slot]), (expected[1], value, np.s_[slot])):
        q, scale = as_int8(x)
        shape = (head_dim, 16) if tile is expected[0] else (16, head_dim)
        tile[: 16 * head_dim].view(np.int8).reshape(shape)[place] = q
        tile[16 * head_dim :].view(np.float32)[slot] = scale
    assert np.array_equal(keys, expected[0])
    assert np.array_equal(values, expected[1])


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=150, deadline=None)
@given(st.lists(finite, min_size=16, max_size=16))
def test_any_finite_head(numbers: list[float]) -> None:
    """As by definition, to the bit, and within half a step and a rounding of what was written."""
    x = floats(numbers)
    q, scale = written(x, 3)
    expected, expected_scale = as_int8(x)
    assert np.array_equal(q, expected)
    assert scale == expected_scale
    error = np.abs(q.astype(np.float64) * float(scale) - x)
    assert error.max() <= max(0.50002 * float(scale), 2.0**-120)


def test_halves_go_to_the_even_integer() -> None:
    """A greatest magnitude of 127 makes the step 1."""
    x = floats([127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, -126.5, 0.49999997, 0.50000006, 125.5, -0.0, 0, 1, -127])
    q, scale = written(x, 0)
    assert scale == 1
    assert q.tolist() == [127, 0, 2, 2, 0, -2, -2, 126, -126, 0, 1, 126, 0, 0, 1, -127]


@pytest.mark.parametrize("tiny", [0.0, -0.0, 1e-45, -1e-40, 7e-37])
def test_what_is_too_small_to_be_scaled_is_zero(tiny: float) -> None:
    """Down to denormals: 127 / x would overflow. 2⁻¹²⁰, 7.5e-37, is the least that is kept."""
    q, scale = written(np.full(32, tiny, np.float32), 1)
    assert not q.any()
    assert scale == 0
    assert not np.signbit(scale)


def test_the_least_and_the_greatest_that_are_scaled() -> None:
    for magnitude in (2.0**-120, 1e-30, 65504.0, 1e38, float(np.finfo(np.float32).max)):
        x = np.zeros(16, np.float32)
        x[:3] = magnitude, -magnitude, np.float32(magnitude) / 4
        q, scale = written(x, 0)
        assert q[:4].tolist() == [127, -127, 32, 0]
        assert scale == np.float32(magnitude) / np.float32(127)


def test_an_outlier_sets_the_step_of_its_own_head_alone() -> None:
    """What a scale for each token and head costs: beside one number of 1,000, all below 3.9 are 0."""
    sizes = Sizes(2, 2, 32, data_type="int8", num_layers=2)

    def change(rows: Floats) -> None:
        rows[5, 2 * 32 + 4] = 1000  # the first key head of token 5

    plain, changed = (make_case(sizes, [40], [40], change=each) for each in (lambda rows: None, change))
    page, slot = int(plain.batch.block_tables[0, 0]), 5
    assert not np.delete(changed.pool.keys[1, page, 0, :, slot], 4).any()
    assert changed.pool.keys[1, page, 0, 4, slot] == 127
    for before, after in zip(plain.pool.arrays, changed.pool.arrays, strict=True):
        first, second = (np.delete(np.moveaxis(each[1, page, 0], -1, 0), slot, 0) for each in (before, after))
        if before is plain.pool.keys or before is plain.pool.key_scales:
            assert np.array_equal(first, second)  # the other tokens of that head
            assert np.array_equal(before[1, page, 1], after[1, page, 1])  # the other head
        else:
            assert np.array_equal(before[1, page], after[1, page])
    assert np.abs(attend(changed) - exact_attention(changed)).max() <= BOUND * np.abs(exact_attention(changed)).max()


def zeros(rows: Floats) -> None:
    """Whole keys, whole values, and both."""
    rows[3:20, 3 * 48 : 4 * 48] = 0
    rows[17:40, 4 * 48 :] = 0


def denormals(rows: Floats) -> None:
    rows[::3, 3 * 48 :] *= np.float32(1e-42)
    rows[::5, 4 * 48 :] *= np.float32(1e-20)


def outliers(rows: Floats) -> None:
    rows[::7, 3 * 48 + 11] = 40
    rows[::11, 4 * 48 + 5] = -30_000


@pytest.mark.parametrize("change", [zeros, denormals, outliers], ids=lambda each: str(each.__name__))
def test_attention_over_awkward_values(change: Callable[[Floats], None]) -> None:
    for lengths, new in (([71, 19], [1, 19]), ([131], [33])):
        case = make_case(Sizes(3, 1, 48, data_type="int8"), lengths, new, seed=4, change=change)
        exact = exact_attention(case)
        assert np.abs(attend(case) - exact).max() <= BOUND * np.abs(exact).max()


def test_nothing_but_zeros() -> None:
    case = make_case(Sizes(3, 1, 48, data_type="int8"), [71], [9], change=lambda rows: rows.fill(0))
    assert not attend(case).any()


def bad_case(bad: float, column: int, data_type: str) -> AttentionCase:
    def change(rows: Floats) -> None:
        rows[29, column] = bad

    return make_case(Sizes(3, 1, 48, data_type=data_type), [71], [71], change=change)


@pytest.mark.parametrize("data_type", ["f32", "int8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [3 * 48, 3 * 48 + 47, 4 * 48, 4 * 48 + 47])
def test_a_bad_number_spoils_what_attends_it_and_nothing_else(column: int, bad: float, data_type: str) -> None:
    """Token 29's key or value. Where float32 gives a number that is none, int8 does, too; before it, all is as ever."""
    with np.errstate(invalid="ignore"):
        got, without = attend(bad_case(bad, column, data_type)), attend(bad_case(0.5, column, data_type))
    assert differing(got[:29], without[:29]) == 0
    assert np.isfinite(got[:29]).all()
    if data_type == "int8":
        floats32 = attend(bad_case(bad, column, "f32"))
        assert not np.isfinite(got[~np.isfinite(floats32)]).any()
        assert not np.isfinite(got[29:]).any()


def test_a_wrong_bit_in_a_scale_is_seen() -> None:
    """The control: the lowest bit of the scale of the only value."""
    case = make_case(Sizes(1, 1, 16, data_type="int8"), [1], [1])
    before = attend(case)
    page = int(case.batch.block_tables[0, 0])
    case.pool.value_scales[1, page, 0, :1].view(np.uint32)[:] ^= 1
    after = attend(case)
    assert (after != before).sum() >= 8
    case.pool.value_scales[1, page, 0, :1].view(np.uint32)[:] ^= 1
    case.pool.values[1, page, 0, 0, 3] ^= 1
    assert np.flatnonzero(attend(case) != before).tolist() == [3]


def test_what_a_slot_held_before_does_not_matter() -> None:
    """Slots behind the last token have any integers and NaN for a scale (``support.pools.spoil``); 0 does as well."""
    case = make_case(Sizes(6, 2, 48, data_type="int8"), [71, 18, 33], [1, 3, 33], seed=1)
    assert any(np.isnan(each).any() for each in (case.pool.key_scales, case.pool.value_scales))
    before = attend(case)
    for scales in (case.pool.key_scales, case.pool.value_scales):
        scales[np.isnan(scales)] = 0
    assert differing(attend(case), before) == 0
