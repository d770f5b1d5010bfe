"""The walk's parts by themselves: cut characters, places of ids, attention probabilities, spreads."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.audit.walk.attention import average_looks, see_attention, strongest_looks
from cutaway.audit.walk.tokens import CutCharacter, SeenToken, cut_characters, find_ids
from cutaway.audit.walk.vectors import largest, log_softmax, spread


def tokens(count: int) -> list[SeenToken]:
    return [SeenToken(position, 100 + position, f"t{position}", False) for position in range(count)]


@pytest.mark.parametrize(
    ("pieces", "cut"),
    [
        ([b"abc", b"d"], []),
        ([b"\xe4\xbb", b"\x8a"], [CutCharacter("今", 0, 1)]),
        ([b"a\xe5", b"\xa4", b"\xa9\xe5\xa4", b"\xa9"], [CutCharacter("天", 0, 2), CutCharacter("天", 2, 3)]),
        ([b" \xf0\x9f", b"", b"\xa6\x86!"], [CutCharacter("🦆", 0, 2)]),
        ([b"\xc3", b"\xa9"], [CutCharacter("é", 0, 1)]),
        ([b"\xff", b"\x80", b"\xe4\xbb", b"x"], []),  # no UTF-8, and a character that never ends
        ([b"\xe4\xbb"], []),
        ([], []),
    ],
)
def test_characters_in_several_tokens_are_found(pieces: list[bytes], cut: list[CutCharacter]) -> None:
    assert list(cut_characters(pieces)) == cut


@given(st.text(max_size=20), st.lists(st.integers(0, 80), max_size=12))
def test_a_character_is_whole_in_a_token_or_cut(text: str, places: list[int]) -> None:
    """Those that tokens hold whole, and those that are cut, are all there are, in their order."""
    data = text.encode("utf-8", errors="ignore")
    edges = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    pieces = [data[begin:end] for begin, end in itertools.pairwise(edges)]
    cut = cut_characters(pieces)
    whole = sum(len(piece.decode("utf-8", errors="ignore")) for piece in pieces)
    assert whole + len(cut) == len(data.decode("utf-8"))
    for each in cut:
        assert each.first < each.last
        assert each.character.encode("utf-8") in b"".join(pieces[each.first : each.last + 1])


@pytest.mark.parametrize(
    ("ids", "wanted", "place"),
    [
        ([5, 1, 2, 3, 1, 2, 9], [1, 2], (4, 6)),
        ([1, 2], [1, 2], (0, 2)),
        ([1, 2], [2, 1], None),
        ([1, 2], [], None),
        ([], [1], None),
        ([1], [1, 1], None),
    ],
)
def test_ids_are_found_at_their_last_place(ids: list[int], wanted: list[int], place: tuple[int, int] | None) -> None:
    assert find_ids(ids, wanted) == place


def test_attention_is_seen_head_by_head() -> None:
    """Four query heads read two key heads; the average is over all of them."""
    rows = np.array([[0.5, 0.25, 0.25], [0.0, 0.75, 0.25], [0.125, 0.375, 0.5], [0.25, 0.25, 0.5]], np.float32)
    seen = see_attention(rows, 2, tokens(3))
    assert [(each.head, each.kv_head) for each in seen.heads] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert [(each.first, each.itself) for each in seen.heads] == [(0.5, 0.25), (0, 0.25), (0.125, 0.5), (0.25, 0.5)]
    assert [each.strongest[0].position for each in seen.heads] == [0, 1, 2, 2]
    assert seen.average.probabilities == (0.21875, 0.40625, 0.375)


def test_the_strongest_come_first_and_the_lower_position_among_equals() -> None:
    looks = strongest_looks(np.array([0.1, 0.3, 0.2, 0.3, 0.1]), tokens(5), 4)
    assert [(each.position, each.distance, each.id, each.piece) for each in looks] == [
        (1, 3, 101, "t1"),
        (3, 1, 103, "t3"),
        (2, 2, 102, "t2"),
        (0, 4, 100, "t0"),
    ]


def test_an_average_is_over_heads() -> None:
    looks = average_looks(np.array([[0.5, 0.25, 0.25], [0.0, 0.25, 0.75]]), tokens(3))
    assert (looks.first, looks.itself, looks.probabilities) == (0.25, 0.5, (0.25, 0.25, 0.5))


def test_spreads_are_of_float64() -> None:
    seen = spread(np.array([3, -4], np.int8))
    assert (seen.norm, seen.rms, seen.least, seen.greatest) == (5.0, 12.5**0.5, -4.0, 3.0)
    assert spread(np.full(4, 1e30, np.float32)).norm == pytest.approx(2e30, rel=1e-6)  # its square is no float32


def test_a_dropped_token_has_no_probability() -> None:
    logs = log_softmax(np.array([0.0, -np.inf, np.log(3.0), -3000.0]))
    assert np.exp(logs[:3]) == pytest.approx([0.25, 0.0, 0.75])
    assert np.isneginf(logs[1])
    assert np.isfinite(logs[3])  # too small for a float, but it can be drawn


@given(st.lists(st.sampled_from([-np.inf, -1.5, 0.0, 2.0, 3.0]), min_size=1, max_size=30), st.integers(1, 12))
def test_the_largest_are_found_as_by_sorting(numbers: list[float], count: int) -> None:
    expected = sorted(range(len(numbers)), key=lambda i: (-numbers[i], i))[:count]
    assert largest(np.array(numbers), count) == expected
