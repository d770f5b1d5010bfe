"""The walk's parts by themselves: cut characters, places of ids, attention probabilities, spreads."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.audit.walk.attention import (
    ScoreRule,
    attention_probabilities,
    average_looks,
    see_attention,
    strongest_looks,
    weighted_values,
)
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


PLAIN = ScoreRule(window=0, scale=0.25, cap=0.0)


def test_attention_is_softmax_and_a_weighted_sum() -> None:
    """One head, one position, one number after the other; 6 heads share 2 KV heads."""
    rng = np.random.default_rng(3)
    H, Hkv, C, Dh = 6, 2, 13, 16
    queries, keys, values = (rng.standard_normal(shape) for shape in ((H, Dh), (C, Hkv, Dh), (C, Hkv, Dh)))
    probabilities = attention_probabilities(queries, keys, PLAIN)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(H), abs=1e-12)
    mixed = weighted_values(probabilities, values)
    for head in range(H):
        scores = [sum(queries[head, i] * keys[p, head // 3, i] for i in range(Dh)) / 4.0 for p in range(C)]
        total = sum(np.exp(score) for score in scores)
        for p in range(C):
            assert probabilities[head, p] == pytest.approx(np.exp(scores[p]) / total, rel=1e-12)
        for i in range(Dh):
            expected = sum(np.exp(scores[p]) / total * values[p, head // 3, i] for p in range(C))
            assert mixed[head, i] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_a_window_and_a_soft_cap() -> None:
    """Nothing before the last positions; scores that are bent before the softmax."""
    rng = np.random.default_rng(5)
    queries, keys = rng.standard_normal((2, 16)) * 3, rng.standard_normal((9, 1, 16))
    seen = attention_probabilities(queries, keys, ScoreRule(window=4, scale=0.5, cap=2.0))
    assert not seen[:, :5].any()
    scores = 2.0 * np.tanh(0.5 * queries @ keys[5:, 0].T / 2.0)
    assert seen[:, 5:] == pytest.approx(np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True), rel=1e-12)


def test_large_scores_do_not_overflow() -> None:
    probabilities = attention_probabilities(np.full((1, 16), 100.0), np.array([[[100.0] * 16], [[-100.0] * 16]]), PLAIN)
    assert probabilities.tolist() == [[1.0, 0.0]]


def test_the_difference_tells_wrong_keys_from_right_ones() -> None:
    rng = np.random.default_rng(4)
    queries, keys, values = (rng.standard_normal(shape) for shape in ((4, 16), (9, 2, 16), (9, 2, 16)))
    output = weighted_values(attention_probabilities(queries, keys, PLAIN), values)
    assert see_attention(queries, keys, values, output, tokens(9), PLAIN).difference < 1e-14
    assert see_attention(queries, np.roll(keys, 1, axis=0), values, output, tokens(9), PLAIN).difference > 0.01
    assert see_attention(queries, keys[:, ::-1], values, output, tokens(9), PLAIN).difference > 0.01


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
