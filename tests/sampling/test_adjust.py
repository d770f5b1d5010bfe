"""Logit bias, masks and penalties: each against float64, published cases, and what other engines got wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sampling_oracle as oracle
from hypothesis import given
from hypothesis import strategies as st

from cutaway.sampling import adjust

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "fixtures" / "sampler_vectors.json").read_text())
LARGEST = float(np.finfo(np.float32).max)


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int32)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def penalised(
    logits: np.ndarray,
    prompt: np.ndarray,
    output: np.ndarray,
    repetition: float = 1.0,
    presence: float = 0.0,
    frequency: float = 0.0,
) -> np.ndarray:
    """The row after all penalties. The counts begin as anything: what is left there from another row is not read."""
    row, counts = logits.copy(), np.full(logits.size, 77, np.int32)
    adjust.repetition_penalty(row, repetition, prompt, output, counts)
    adjust.count_penalties(row, presence, frequency, output, counts)
    return row


@st.composite
def sequences(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A row of logits, a prompt and an output; few different tokens, so that they come again."""
    V = draw(st.integers(1, 150))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    logits = (rng.standard_normal(V) * draw(st.sampled_from([0.0, 1.0, 30.0]))).astype(np.float32)
    if draw(st.booleans()):
        logits[rng.random(V) < 0.3] = draw(st.sampled_from([0.0, -0.0, np.inf, -np.inf]))
    few = rng.integers(V, size=draw(st.integers(1, 9)))
    prompt, output = (rng.choice(few, draw(st.integers(0, 40))).astype(np.int32) for _ in range(2))
    return logits, prompt, output


@given(sequences(), st.floats(0.01, 100), st.floats(-2, 2), st.floats(-2, 2))
def test_penalties_agree_with_float64(
    row: tuple[np.ndarray, np.ndarray, np.ndarray], repetition: float, presence: float, frequency: float
) -> None:
    logits, prompt, output = row
    expected = oracle.repetition_penalty(logits.astype(np.float64), repetition, prompt, output)
    expected = oracle.count_penalties(expected, presence, frequency, output)
    result = penalised(logits, prompt, output, repetition, presence, frequency)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=2e-5)
    untouched = np.setdiff1d(np.arange(logits.size), np.concatenate([prompt, output]))
    assert (result[untouched] == logits[untouched]).all()


def test_presence_and_frequency_count_what_was_generated_and_repetition_the_prompt_too() -> None:
    result = penalised(floats(2, -2, 1), ids(0), ids(1, 1), repetition=2, presence=0.25, frequency=0.5)
    assert result.tolist() == [1, -4 - 1 - 0.25, 1]


def test_on_the_first_step_the_prompt_counts_for_repetition_alone() -> None:
    paris = ids(1, 1, 1, 2, 1)
    result = penalised(floats(3, 3, 3, 3), paris, ids(), repetition=1.5, presence=2, frequency=2)
    assert result.tolist() == [3, 2, 2, 3]


def test_the_border_between_prompt_and_output_counts() -> None:
    # What was computed again after a preemption must not become a part of the prompt.
    before = penalised(floats(1, 1, 1), ids(0), ids(1, 1), presence=1, frequency=0.5)
    moved = penalised(floats(1, 1, 1), ids(0, 1), ids(1), presence=1, frequency=0.5)
    assert before.tolist() == [1, -1, 1]
    assert moved.tolist() == [1, -0.5, 1]


@pytest.mark.parametrize("case", [case for case in VECTORS["cases"] if case["sampler"] == "penalties"])
def test_published_cases(case: dict[str, Any]) -> None:
    # Their source counts the prompt's tokens and the output's alike, so its last tokens are both at once.
    logits = np.log(np.array(case["probs"])).astype(np.float32)
    last = ids(*case["last_tokens"])
    for prompt in (ids(), last):
        result = penalised(logits, prompt, last, case["repeat"], case["presence"], case["frequency"])
        np.testing.assert_allclose(oracle.softmax(result), case["expected"], atol=1e-5)
    # As a prompt alone they count for repetition only.
    result = penalised(logits, last, ids(), case["repeat"], case["presence"], case["frequency"])
    repeats = case["repeat"] != 1.0
    np.testing.assert_allclose(oracle.softmax(result), case["expected"] if repeats else case["probs"], atol=1e-5)


@pytest.mark.parametrize("repetition", [1e-300, 1e-30, 0.5, 1.0, 2.0, 100.0])
def test_a_repetition_penalty_keeps_finite_logits_finite_and_infinite_ones_infinite(repetition: float) -> None:
    logits = floats(LARGEST, -LARGEST, 1e-45, -1e-45, 0.0, -0.0, np.inf, -np.inf)
    everything = ids(*range(8))
    result = penalised(logits, everything, everything, repetition=max(repetition, 2.0**-126))
    assert np.isfinite(result[:6]).all()
    assert (result[4:6] == 0).all()
    assert result[6:].tolist() == [np.inf, -np.inf]


def test_a_token_that_came_a_hundred_thousand_times() -> None:
    output = np.zeros(100_000, np.int32)
    for frequency, expected in ((2.0, -199_999.0), (-2.0, 200_001.0)):
        result = penalised(floats(1, 1), ids(), output, frequency=frequency)
        assert result.tolist() == [expected, 1.0]


@given(sequences())
def test_values_that_ask_for_nothing_change_no_bit(row: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    logits, prompt, output = row
    assert penalised(logits, prompt, output).tobytes() == logits.tobytes()
    changed = logits.copy()
    adjust.logit_bias(changed, ids(), floats())
    every = np.full(-(-logits.size // 32), -1, np.int32)
    for bits in (ids(), every):
        adjust.masks(changed, ids(), ids(), bits, np.zeros(logits.size, np.float32))
        assert changed.tobytes() == logits.tobytes()


@given(st.integers(1, 100), st.data())
def test_bias_is_added_and_masks_keep_what_is_allowed_and_not_forbidden(V: int, data: st.DataObject) -> None:
    tokens = st.integers(0, V - 1)
    logits = np.random.default_rng(V).standard_normal(V).astype(np.float32)
    biases = data.draw(st.dictionaries(tokens, st.floats(-100, 100, width=32)))
    allowed = data.draw(st.none() | st.lists(tokens, min_size=1, unique=True))
    forbidden = data.draw(st.lists(tokens))
    grammar = data.draw(st.none() | st.sets(tokens))
    bits = np.zeros(0 if grammar is None else -(-V // 32), np.uint32)
    for token in grammar or ():
        bits[token // 32] |= np.uint32(1 << token % 32)
    row = logits.copy()
    adjust.logit_bias(row, ids(*biases), floats(*biases.values()))
    biased = oracle.logit_bias(logits.astype(np.float64), biases)
    np.testing.assert_allclose(row, biased, rtol=1e-6, atol=1e-6)
    kept = np.full(V, np.nan, np.float32)
    adjust.masks(row, ids(*(allowed or ())), ids(*forbidden), bits.view(np.int32), kept)
    np.testing.assert_allclose(row, oracle.masks(biased, allowed, forbidden, grammar), rtol=1e-6, atol=1e-6)


def test_a_bias_moves_no_infinity() -> None:
    row = floats(np.inf, -np.inf, LARGEST, -LARGEST)
    for bias in (100.0, -100.0):
        adjust.logit_bias(row, ids(0, 1, 2, 3), floats(*[bias] * 4))
    assert row.tolist() == [np.inf, -np.inf, LARGEST, -LARGEST]
