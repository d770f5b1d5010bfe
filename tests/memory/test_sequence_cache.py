"""What the cache says is there, against a model of the pool that remembers who wrote what."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import InvalidRequestError
from cutaway.memory.kv_setting import KV_SETTINGS, kv_setting
from cutaway.memory.sequence_cache import SequenceCache

CONTEXT = 37
SEQUENCES = st.lists(st.integers(0, 2), min_size=1, max_size=CONTEXT)  # few ids, so that prefixes are shared


@given(
    name=st.sampled_from(sorted(KV_SETTINGS)),
    requests=st.lists(st.tuples(SEQUENCES, st.integers(1, 9), st.integers(0, 40)), max_size=12),
)
def test_what_is_reused_is_what_was_written(name: str, requests: list[tuple[list[int], int, int]]) -> None:
    """Each request is computed in chunks, and may be broken off after any of them, written but not counted."""
    cache = SequenceCache(kv_setting(name), CONTEXT)
    written: dict[int, tuple[int, ...]] = {}  # position → the ids up to it that its keys and values came from
    for ids, chunk, breaks_after in requests:
        first = cache.reuse(np.array(ids, np.int32))
        assert 0 <= first < len(ids)
        for position in range(first):
            assert written[position] == tuple(ids[: position + 1])
        table = cache.reserve(len(ids))
        assert len(table) == -(-len(ids) // cache.page_length)
        while first < len(ids):
            end = min(first + chunk, len(ids))
            written |= {position: tuple(ids[: position + 1]) for position in range(first, end)}
            if breaks_after == 0:
                break
            breaks_after -= 1
            cache.append(np.array(ids[first:end], np.int32))
            first = end
        else:
            assert cache.num_cached_tokens == len(ids)
            cache.end_step()
            assert cache.num_cached_tokens == (0 if name == "none" else len(ids))


def test_the_longest_common_prefix_is_reused() -> None:
    cache = SequenceCache(kv_setting("paged"), CONTEXT)
    cache.reserve(5)
    cache.append(np.array([4, 3, 2, 1, 0], np.int32))
    for ids, want in [
        ([4, 3, 2, 1, 0, 9], 5),
        ([4, 3, 2, 1, 0], 4),  # all are there, and the last is computed all the same
        ([4, 3, 2], 2),
        ([4, 9, 2], 1),
        ([9, 3], 0),
    ]:
        assert cache.reuse(np.array(ids, np.int32)) == want, ids


@pytest.mark.parametrize(
    ("name", "lengths"), [("paged", [16, 16, 32, 48]), ("contiguous", [48] * 4), ("none", [16, 16, 32, 48])]
)
def test_pages_that_are_reserved(name: str, lengths: list[int]) -> None:
    cache = SequenceCache(kv_setting(name), CONTEXT)
    for length, want in zip((1, 16, 17, 37), lengths, strict=True):
        cache.reserve(length)
        assert cache.num_reserved_tokens == want
    cache.end_step()
    assert cache.num_reserved_tokens == (0 if name == "none" else 48)


@pytest.mark.parametrize("name", ["", "Paged", "ring", None, 1, []])
def test_other_settings_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"kv is .*; it must be one of none, contiguous, paged") as caught:
        kv_setting(name)
    assert caught.value.field == "kv"
