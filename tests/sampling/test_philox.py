"""Philox against published vectors and an oracle in Python integers."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling_oracle import noise_word
from sampling_oracle import philox as oracle

from cutaway.ops.simd import load_int, store_int
from cutaway.sampling.philox import noise_words, philox

# Random123 1.14 (D. E. Shaw Research), tests/kat_vectors, the lines "philox4x32 10": counter, key, result.
KNOWN = (
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
)


def words(text: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in text.split())


@numba.njit
def _philox(counters, key_0, key_1, out):
    address = counters.ctypes.data
    c0, c1, c2, c3 = load_int(address), load_int(address + 64), load_int(address + 128), load_int(address + 192)
    w0, w1, w2, w3 = philox(c0, c1, c2, c3, key_0, key_1)
    target = out.ctypes.data
    store_int(target, w0)
    store_int(target + 64, w1)
    store_int(target + 128, w2)
    store_int(target + 192, w3)


@numba.njit
def _noise(seed, choice, position, block, out):
    w0, w1, w2, w3 = noise_words(seed, choice, position, block)
    target = out.ctypes.data
    store_int(target, w0)
    store_int(target + 64, w1)
    store_int(target + 128, w2)
    store_int(target + 192, w3)


def compiled(counters: np.ndarray, key: tuple[int, ...]) -> np.ndarray:
    """counters: [4, 16] uint32 → [4, 16] uint32."""
    out = np.zeros((4, 16), np.uint32)
    _philox(counters, key[0], key[1], out)
    return out


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_known_answers(counter: str, key: str, result: str) -> None:
    assert oracle(words(counter), words(key)) == words(result)
    same = np.repeat(np.array(words(counter), np.uint32)[:, None], 16, axis=1)
    assert (compiled(same, words(key)) == np.array(words(result), np.uint32)[:, None]).all()


@given(st.integers(0, 2**64 - 1))
def test_every_lane_agrees_with_python_integers(seed: int) -> None:
    counters = np.random.default_rng(seed).integers(0, 2**32, (4, 16), np.uint32)
    key = (seed & 0xFFFFFFFF, seed >> 32)
    expected = [oracle(tuple(map(int, counters[:, lane])), key) for lane in range(16)]
    assert compiled(counters, key).T.tolist() == [list(each) for each in expected]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**20))
def test_the_words_of_ids_follow_the_documented_layout(seed: int, choice: int, position: int, block: int) -> None:
    out = np.zeros(64, np.uint32)
    _noise(seed, choice, position, block, out)
    assert out.tolist() == [noise_word(seed, choice, position, 64 * block + i) for i in range(64)]


def test_each_argument_changes_the_noise() -> None:
    seen = set()
    for arguments in [(0, 0, 0, 0), (1, 0, 0, 0), (1 << 32, 0, 0, 0), (-1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0)]:
        out = np.zeros(64, np.uint32)
        _noise(*arguments, out)
        seen.update(out.tolist())
    assert len(seen) == 6 * 64
