"""The KV pool's layout and what it refuses; an arena's pieces."""

import numpy as np
import pytest

from cutaway.errors import CapacityError, InvalidRequestError
from cutaway.memory.kv_cache import allocate_kv_pool, copy_page
from cutaway.ops.cpu.kv_tiles import KV_FORMATS
from cutaway.ops.cpu.memory import ALIGNMENT, Arena, aligned
from support.configs import plain_config

CONFIG = plain_config(num_layers=3, width=160, num_heads=5, num_kv_heads=5, head_dim=32)


@pytest.mark.parametrize(("data_type", "dtype"), [("f16", np.float16), ("f32", np.float32), ("int8", np.int8)])
def test_the_record_points_into_the_arrays(data_type: str, dtype: type) -> None:
    pool = allocate_kv_pool(CONFIG, 7, 48, data_type)
    assert pool.keys.shape == (3, 21, 5, 32, 16)
    assert pool.values.shape == (3, 21, 5, 16, 32)
    assert pool.keys.dtype == pool.values.dtype == dtype
    record = pool.record
    assert (record.keys, record.values) == (pool.keys.ctypes.data, pool.values.ctypes.data)
    assert (
        (record.layer_bytes, record.subtile_bytes, record.head_bytes)
        == pool.keys.strides[:3]
        == pool.values.strides[:3]
    )
    assert record.page_subtiles == 3
    assert not np.shares_memory(pool.keys, pool.values)
    assert not any(array.any() for array in pool.arrays)
    assert pool.key_scales.shape == pool.value_scales.shape == (3, 21, 5, 16 if data_type == "int8" else 0)


def test_scales_lie_behind_the_numbers_of_their_head() -> None:
    """Byte by byte, for keys and values alike: 32 · 16 numbers, then 16 scales, then the next head."""
    pool = allocate_kv_pool(CONFIG, 7, 48, "int8")
    assert pool.record.scales == 32 * 16
    assert pool.record.head_bytes == 32 * 16 + 16 * 4
    for numbers, scales in ((pool.keys, pool.key_scales), (pool.values, pool.value_scales)):
        assert scales.dtype == np.float32
        assert scales.ctypes.data - numbers.ctypes.data == pool.record.scales
        assert scales.strides == (*numbers.strides[:3], 4)
    assert pool.nbytes == 2 * 3 * 21 * 5 * (32 * 16 + 16 * 4)
    assert pool.position_bytes == 2 * 3 * 5 * (32 + 4)


@pytest.mark.parametrize("data_type", KV_FORMATS)
def test_a_copied_page_is_the_same_and_no_other_changes(data_type: str) -> None:
    pool = allocate_kv_pool(CONFIG, 4, 48, data_type)
    rng = np.random.default_rng(3)
    for array in pool.arrays:
        array[:] = rng.integers(1, 100, array.shape)
    before = [array.copy() for array in pool.arrays]
    copy_page(pool, 2, 1)
    for array, old in zip(pool.arrays, before, strict=True):
        old[:, 3:6] = old[:, 6:9]
        assert np.array_equal(array, old)


@pytest.mark.parametrize("page_length", [0, -16, 8, 17, 24])
def test_a_page_is_whole_subtiles(page_length: int) -> None:
    with pytest.raises(
        InvalidRequestError, match=rf"page_length is {page_length}; it must be a multiple of 16"
    ) as error:
        allocate_kv_pool(CONFIG, 7, page_length)
    assert error.value.field == "page_length"


def test_an_unknown_data_type_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="kv_dtype is 'f8'; it must be one of f16, f32, int8") as error:
        allocate_kv_pool(CONFIG, 7, 16, "f8")
    assert error.value.field == "kv_dtype"


def test_a_pool_that_no_memory_can_hold_is_refused_with_its_size() -> None:
    with pytest.raises(CapacityError, match=r"[0-9,]{15,} bytes of memory were refused.*Use a smaller"):
        allocate_kv_pool(CONFIG, 1 << 34, 256)


def test_pieces_of_an_arena_are_aligned_and_apart() -> None:
    arena = Arena(sum(aligned(size) for size in (1, 64, 65, 1000)))
    pieces = [arena.take(size) for size in (1, 64, 65, 1000)]
    for number, piece in enumerate(pieces):
        assert piece.ctypes.data % ALIGNMENT == 0
        assert not piece.any()
        piece[:] = number + 1
    assert [set(piece.tolist()) for piece in pieces] == [{1}, {2}, {3}, {4}]
    assert arena.used == arena.size
    with pytest.raises(AssertionError, match="asked for 1 more"):
        arena.take(1)


def test_pieces_keep_their_arena_alive() -> None:
    piece = Arena(1 << 16).take(1 << 16)
    piece[:] = 7
    assert (piece == 7).all()
