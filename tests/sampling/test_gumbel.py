"""The noise's distribution, its tails, and the draw."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling_oracle import gumbel as oracle
from sampling_oracle import noise_word

from cutaway.ops.simd import load, load_int, store, sub
from cutaway.sampling.gumbel import LARGEST_NOISE, draw, gumbel
from cutaway.sampling.philox import noise_words
from cutaway.sampling.sampler import NoiseKey, noise_row


@numba.njit
def _gumbel(words, out):
    for i in range(0, words.size, 16):
        store(out.ctypes.data + 4 * i, gumbel(load_int(words.ctypes.data + 4 * i)))


@numba.njit
def _scores(distances, seed, choice, position, out):
    for block in range(distances.size // 64):
        for word, words in enumerate(noise_words(seed, choice, position, block)):
            i = 4 * (64 * block + 16 * word)
            store(out.ctypes.data + i, sub(gumbel(words), load(distances.ctypes.data + i)))


def compiled(words: np.ndarray) -> np.ndarray:
    """words: [n] uint32, n a multiple of 16."""
    out = np.empty(words.size, np.float32)
    _gumbel(words, out)
    return out.astype(np.float64)


def test_agrees_with_float64_over_the_whole_range() -> None:
    small = np.arange(4096, dtype=np.uint32)
    powers = (np.uint64(1) << np.repeat(np.arange(32, dtype=np.uint64), 16)).astype(np.uint32)
    powers += np.tile(np.arange(16, dtype=np.uint32), 32)
    words = np.concatenate([small, ~small, powers, np.random.default_rng(0).integers(0, 2**32, 2**20, np.uint32)])
    noise, expected = compiled(words), oracle(words)
    # 1 - v is known to 2^-24 (the clamp included), which moves the noise by its derivative 1 / ((1 - v) · -ln(1 - v)).
    below_one = 1.0 - ((words >> 1).astype(np.float64) + 0.5) / 2.0**31
    moved = 2.0**-24 / (below_one * np.exp(-expected)) * (below_one < 0.5)
    assert (np.abs(noise - expected) <= 4e-7 * np.maximum(1.0, np.abs(expected)) + moved).all()


def test_the_extremes_are_finite_and_as_documented() -> None:
    extremes = compiled(np.array([0, 0xFFFFFFFF] * 8, np.uint32))
    np.testing.assert_allclose(extremes[:2], [22.1807, -2.8115], atol=1e-4)
    assert extremes[0] < LARGEST_NOISE


def test_the_upper_tail_has_the_right_odds_down_to_2e_minus_9() -> None:
    # Noise falls as the 31-bit integer grows, so the odds of exceeding t are the place where it falls below t.
    for t in np.linspace(-2.5, 21.0, 95):
        low, high = 0, 2**31
        while low < high:
            middle = (low + high) // 2
            if compiled(np.full(16, 2 * middle, np.uint32))[0] > t:
                low = middle + 1
            else:
                high = middle
        odds = -np.expm1(-np.exp(-t))
        assert abs(low / 2.0**31 - odds) <= 2.0**-31 + 2e-6 * odds, t


def test_draw_is_the_argmax_of_noise_minus_distance() -> None:
    rng = np.random.default_rng(1)
    clear = 0
    for position in range(200):
        V = int(rng.integers(1, 700))
        distances = np.full(-(-V // 64) * 64, np.inf, np.float32)
        distances[:V] = rng.exponential(rng.choice([0.01, 1, 10, 1000]), V)
        distances[rng.integers(V)] = 0
        seed, choice = int(rng.integers(-(2**63), 2**63)), int(rng.integers(2**32))
        words = [noise_word(seed, choice, position, token) for token in range(V)]
        scores = oracle(words) - distances[:V]
        best, second = np.sort(np.append(scores, -np.inf))[::-1][:2]
        if best - second > 1e-4:
            clear += 1
            assert draw(distances, seed, choice, position) == scores.argmax()
    assert clear > 180


@given(st.integers(0, 2**62), st.data())
def test_a_token_that_wins_among_all_wins_among_some(seed: int, data: st.DataObject) -> None:
    # The noise of an id depends neither on the size of the vocabulary nor on the other candidates.
    V = data.draw(st.integers(1, 300))
    distances = np.full(-(-V // 64) * 64, np.inf, np.float32)
    distances[:V] = np.random.default_rng(seed).exponential(1.0, V)
    winner = draw(distances, seed, 0, 7)
    others = data.draw(st.sets(st.integers(0, V - 1)))
    fewer = distances.copy()
    fewer[[token for token in others if token != winner]] = np.inf
    wider = np.full(1024, np.inf, np.float32)
    wider[: fewer.size] = fewer
    assert draw(fewer, seed, 0, 7) == draw(wider, seed, 0, 7) == winner


@pytest.mark.parametrize("V", [1, 64, 65, 1000])
@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1, -(2**63)])
def test_the_noise_to_look_at_is_the_one_that_is_drawn_with(V: int, seed: int) -> None:
    distances = np.full(-(-V // 64) * 64, np.inf, np.float32)
    distances[:V] = np.random.default_rng(V).exponential(2.0, V)
    for position in (0, 7, 2**31 - 1):
        noise = noise_row(NoiseKey(seed, 3, position), V)
        assert noise.shape == (V,)
        scores = np.empty(distances.size, np.float32)
        _scores(distances, seed, 3, position, scores)
        assert (noise - distances[:V]).tobytes() == scores[:V].tobytes()
        assert draw(distances, seed, 3, position) == (noise - distances[:V]).argmax()


def test_passing_over_hopeless_tokens_changes_nothing() -> None:
    # About as many tokens can still win as are passed over, and which ones changes as the draw goes on.
    V, elsewhere = 1 << 14, 0
    for position in range(200):
        distances = np.random.default_rng(position).uniform(8.0, 30.0, V).astype(np.float32)
        distances[V // 2] = 0.0
        scores = np.empty(V, np.float32)
        _scores(distances, 3, 1, position, scores)
        assert draw(distances, 3, 1, position) == scores.argmax()
        elsewhere += scores.argmax() != V // 2
    assert 10 < elsewhere < 190


def test_the_lowest_id_wins_among_equal_scores() -> None:
    # 22.18 is lost in a score of 2^28, so that all tokens at that distance are equal.
    distances = np.full(320, 2.0**28, np.float32)
    for lowest in (0, 15, 16, 63, 64, 200):
        distances[:lowest] = np.inf
        assert draw(distances, 5, 0, 0) == lowest
