"""Log-probabilities against float64: of the whole row, of the token chosen, and of the likeliest."""

import numpy as np
import pytest
import sampling_oracle as oracle
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import ComputationError
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, SampleResult, sample_row, score_row


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
    assert result.rank == result.token_id + 1


def test_the_likeliest_are_listed_and_not_the_first_ids() -> None:
    result = sampled(np.array([0, 1, 2, 3], np.float32), temperature=0, logprobs=2)
    assert [token for token, _ in result.top_logprobs] == [3, 2]


def test_none_and_zero() -> None:
    logits = np.array([3, 2, 1, 0], np.float32)
    assert sampled(logits)[1:4] == (None, (), None)
    assert sampled(logits, temperature=0).noise is None
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
    assert result.rank == 1 + sum(1 for logit in logits if logit > logits[result.token_id])
    for token in {*ids, 0, V - 1, int(rng.integers(V))}:
        scored = score_row(logits, token, count, SamplerScratch.allocate(V))
        assert scored.top_logprobs == result.top_logprobs
        assert scored.token_id == token
        assert scored.rank == 1 + sum(1 for logit in logits if logit > logits[token])
        assert scored.logprob == dict(result.top_logprobs).get(token, scored.logprob)
        assert scored.logprob == pytest.approx(expected[token], abs=1e-6, rel=1e-6)


def test_a_given_token_is_scored_as_if_it_had_been_drawn() -> None:
    logits = (np.random.default_rng(5).standard_normal(3001) * 4).astype(np.float32)
    scratch = SamplerScratch.allocate(logits.size)
    tokens = set()
    for position in range(100):
        drawn = sample_row(logits, SamplingParams(logprobs=2, temperature=3), NoiseKey(1, 0, position), scratch)
        assert score_row(logits, drawn.token_id, 2, scratch) == drawn._replace(noise=None)
        tokens.add(drawn.token_id)
    assert len(tokens) > 50


def test_all_of_a_row_scored_sums_to_one() -> None:
    logits = (np.random.default_rng(6).standard_normal(1501) * 3).astype(np.float32)
    scratch = SamplerScratch.allocate(logits.size)
    scores = [score_row(logits, token, 0, scratch) for token in range(logits.size)]
    assert np.exp(np.array([each.logprob for each in scores])).sum() == pytest.approx(1, abs=2e-6)
    assert sorted(each.rank for each in scores) == list(range(1, logits.size + 1))


def test_an_impossible_token_scores_minus_infinity() -> None:
    logits = np.array([0, -np.inf, 3, np.inf], np.float32)
    scratch = SamplerScratch.allocate(4)
    impossible = score_row(logits, 1, 0, scratch)
    assert (impossible.logprob, impossible.rank) == (-np.inf, 4)
    assert score_row(logits, 3, 0, scratch) == (3, 0.0, (), 1, None)


@pytest.mark.parametrize(("bad", "message"), [(np.nan, "id 7 .of 9. is NaN"), (-np.inf, "all 9 logits are -inf")])
def test_a_row_that_cant_be_scored_is_an_error(bad: float, message: str) -> None:
    logits = np.full(9, -np.inf, np.float32)
    logits[7] = bad
    with pytest.raises(ComputationError, match=message):
        score_row(logits, 0, 0, SamplerScratch.allocate(9))


@pytest.mark.parametrize("token", [-1, 9, 2**40])
def test_a_token_outside_the_vocabulary_is_not_scored(token: int) -> None:
    with pytest.raises(AssertionError):
        score_row(np.zeros(9, np.float32), token, 0, SamplerScratch.allocate(9))


def test_equals_have_the_same_rank() -> None:
    logits = np.array([1, 2, 2, -0.0, 0.0, 3], np.float32)
    assert [score_row(logits, token, 0, SamplerScratch.allocate(6)).rank for token in range(6)] == [4, 2, 2, 5, 5, 1]


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
    assert result[:4] == (42, 0.0, ((42, 0.0),), 1)


@pytest.mark.parametrize("V", [1024, 3 * 1024 + 17])
def test_a_block_with_a_masked_logit_is_summed_as_one_without(V: int) -> None:
    """A logit of -1e30 has the same part in the sum as one of -inf, alone in its vector or beside others."""
    rng = np.random.default_rng(V)
    logits = (rng.standard_normal(V) * 3).astype(np.float32)
    logits[rng.choice(np.arange(64, V), 5, replace=False)] = logits[:32] = -1e30
    token = int(logits.argmax())
    scratch = SamplerScratch.allocate(V)
    finite = score_row(logits, token, 3, scratch)
    masked = np.where(logits == np.float32(-1e30), np.float32(-np.inf), logits)
    assert (masked == -np.inf).sum() == 37
    assert score_row(masked, token, 3, scratch) == finite
    assert finite.logprob == pytest.approx(oracle.log_softmax(logits)[token], abs=1e-6)


def test_an_infinite_logit_counts_as_the_largest_float32() -> None:
    logits = np.zeros(2048, np.float32)
    logits[7] = np.inf
    scratch = SamplerScratch.allocate(2048)
    assert score_row(logits, 7, 0, scratch).logprob == 0
    logits[9] = np.inf
    assert score_row(logits, 7, 0, scratch).logprob == pytest.approx(-np.log(2), abs=1e-6)


def test_the_largest_float32_ranks_behind_an_infinite_logit() -> None:
    logits = np.zeros(40, np.float32)
    logits[3], logits[20] = np.inf, np.finfo(np.float32).max
    scratch = SamplerScratch.allocate(40)
    assert [score_row(logits, token, 0, scratch).rank for token in (3, 20, 5)] == [1, 2, 3]
