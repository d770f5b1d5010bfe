"""Log-probabilities against float64: of the whole row, of the token chosen, and of the likeliest."""

import numpy as np
import pytest
import sampling_oracle as oracle
from hypothesis import given
from hypothesis import strategies as st

from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, SampleResult, sample_row


def sampled(logits: np.ndarray, position: int = 0, **params: object) -> SampleResult:
    return sample_row(logits, SamplingParams(**params), NoiseKey(1, 0, position), SamplerScratch.allocate(logits.size))


@pytest.mark.parametrize("params", [{"temperature": 0}, {"top_k": 2}, {"top_p": 0.5}, {"temperature": 5.0}])
def test_logprobs_are_the_models_own_whatever_the_steps(params: dict[str, float]) -> None:
    logits = np.array([3, 2, 1, 0], np.float32)
    expected = oracle.log_softmax(logits)
    result = sampled(logits, logprobs=4, **params)
    assert [token for token, _ in result.top_logprobs] == [0, 1, 2, 3]
    np.testing.assert_allclose([value for _, value in result.top_logprobs], expected, atol=1e-6)
    assert result.logprob == dict(result.top_logprobs)[result.token_id]


def test_the_likeliest_are_listed_and_not_the_first_ids() -> None:
    result = sampled(np.array([0, 1, 2, 3], np.float32), temperature=0, logprobs=2)
    assert [token for token, _ in result.top_logprobs] == [3, 2]


def test_none_and_zero() -> None:
    logits = np.array([3, 2, 1, 0], np.float32)
    assert sampled(logits) == (sampled(logits).token_id, None, ())
    alone = sampled(logits, logprobs=0)
    assert alone.top_logprobs == ()
    assert alone.logprob == sampled(logits, logprobs=4).logprob


def test_a_token_outside_the_list_has_its_own_logprob() -> None:
    logits = np.zeros(1000, np.float32)
    result = sampled(logits, logprobs=3)
    assert [token for token, _ in result.top_logprobs] == [0, 1, 2]
    assert result.token_id not in (0, 1, 2)
    assert result.logprob == pytest.approx(-np.log(1000), abs=1e-6)


@given(
    st.integers(1, 300),
    st.integers(0, 20),
    st.sampled_from([0.0, 0.01, 1.0, 30.0, 1e6]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_any_row(V: int, count: int, scale: float, masked: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = (np.round(rng.standard_normal(V) * 4) / 4 * scale).astype(np.float32)
    if masked:
        logits[1 + rng.integers(V) :] = -np.inf
    expected = oracle.log_softmax(logits)
    result = sampled(logits, logprobs=count)
    tolerance = 1e-6 * np.maximum(1, np.abs(expected))
    assert abs(result.logprob - expected[result.token_id]) <= tolerance[result.token_id]
    ids = [token for token, _ in result.top_logprobs]
    assert ids == oracle.order(logits)[: min(count, int(np.isfinite(logits).sum()))].tolist()
    for token, value in result.top_logprobs:
        assert value <= 0
        assert abs(value - expected[token]) <= tolerance[token]


@pytest.mark.parametrize("V", [17, 49_152, 262_144])
def test_probabilities_of_the_whole_vocabulary_sum_to_one(V: int) -> None:
    logits = (np.random.default_rng(V).standard_normal(V) * 3).astype(np.float32)
    result = sampled(logits, temperature=0, logprobs=1)
    total = result.logprob - np.float64(logits[result.token_id])  # -ln Σ e^x
    assert np.exp(logits.astype(np.float64) + total).sum() == pytest.approx(1, abs=3e-6)


def test_a_certain_token_has_logprob_zero() -> None:
    logits = np.full(100, -np.inf, np.float32)
    logits[42] = -7.5
    result = sampled(logits, logprobs=20)
    assert result == (42, 0.0, ((42, 0.0),))
