"""The sampler as a whole: the distribution drawn from, rows that stand alone, and logits that can't be sampled."""

from collections.abc import Iterator

import numba
import numpy as np
import pytest
import sampling_oracle as oracle
from hypothesis import given
from hypothesis import strategies as st
from sampling_oracle import Asked

from cutaway.errors import ComputationError
from cutaway.sampling.choose import choose_compiled
from cutaway.sampling.history import History
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, SampleResult, sample_row

DRAWS = 100_000
NEVER = -np.inf
LOGITS = np.array([1.5, 0.3, NEVER, -0.2, 2.0, -1.0, 0.3, -3.0, 1.0, 0.0, NEVER, -6.0, 1.9], np.float32)
CASES = {
    "plain": Asked(),
    "cold": Asked(temperature=0.5),
    "hot": Asked(temperature=3.0),
    "top_k": Asked(k=5),
    "top_p": Asked(p=0.8),
    "min_p": Asked(m=0.15),
    "narrowed": Asked(temperature=0.8, k=8, p=0.9, m=0.05),
    "in order": Asked(k=7, p=0.88, m=0.15),  # keeps 5 tokens; 6 if top-p came before top-k, 4 if after min-p
    "bias": Asked(bias={3: 2.5, 4: -1.5, 2: 100.0}),
    "masks": Asked(allowed=(0, 1, 2, 4, 6, 9), forbidden=(4, 11)),
    "repetition": Asked(repetition=1.7, prompt=(0, 0, 3, 5), output=(4, 12)),
    "counts": Asked(presence=0.5, frequency=-0.25, prompt=(4,), output=(0, 8, 0, 0, 12)),
    "all": Asked(
        {3: 1.5, 8: -0.5}, (0, 1, 3, 4, 6, 8, 9, 12), (9,), 1.3, 0.25, 0.125, 0.8, 6, 0.9, 0.1, (0, 4), (12, 12, 3)
    ),
}
BY = {"position": (0, 0, 1), "choice": (0, 1, 0), "seed": (1, 0, 0), "seed, upper half": (1 << 32, 0, 0)}


@numba.njit
def _count(logits, asked, history, seed, choice, position, scratch, counts):
    """counts[id] += 1 for DRAWS draws, each with another noise key."""
    for n in range(DRAWS):
        token, _, _, _, _ = choose_compiled(logits, asked, history, -1, n * seed, n * choice, n * position, scratch)
        counts[token] += 1


def chi_square(counts: np.ndarray, probabilities: np.ndarray) -> tuple[float, float]:
    """The statistic, and the value that it exceeds once in about 10⁵ times (Wilson and Hilferty 1931)."""
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    seen, expected = counts[possible], counts.sum() * probabilities[possible]
    rare = expected < 10  # counted as one, together with the rarest of the others
    rare[np.where(rare, np.inf, expected).argmin()] = True
    seen, expected = (np.append(each[~rare], each[rare].sum()) for each in (seen, expected))
    freedom = expected.size - 1
    limit = freedom * (1 - 2 / (9 * freedom) + 4.265 * np.sqrt(2 / (9 * freedom))) ** 3
    return float(((seen - expected) ** 2 / expected).sum()), float(limit)


def counted(case: Asked, by: str) -> np.ndarray:
    """How often each token is drawn, under keys that differ in one part."""
    params = SamplingParams(
        logit_bias=case.bias,
        allowed_token_ids=case.allowed,
        repetition_penalty=case.repetition,
        presence_penalty=case.presence,
        frequency_penalty=case.frequency,
        temperature=case.temperature,
        top_k=case.k,
        top_p=case.p,
        min_p=case.m,
    )
    history = History(*[np.array(each, np.int32) for each in (case.prompt, case.output, case.forbidden)])
    counts = np.zeros(LOGITS.size, np.int64)
    _count(LOGITS, params.record, history, *BY[by], SamplerScratch.allocate(LOGITS.size), counts)
    assert counts.sum() == DRAWS
    return counts


def expected(case: Asked) -> np.ndarray:
    """The distribution that the case draws from."""
    return oracle.softmax(oracle.trace(LOGITS, case)["min_p"])


@pytest.mark.parametrize("name", CASES)
def test_tokens_are_drawn_with_the_odds_of_the_filtered_distribution(name: str) -> None:
    statistic, limit = chi_square(counted(CASES[name], "position"), expected(CASES[name]))
    assert statistic < limit


def test_the_case_for_the_order_of_the_steps_tells_the_orders_apart() -> None:
    case = CASES["in order"]
    row = oracle.softmax(LOGITS)
    top_p_first = oracle.min_p(oracle.top_k(oracle.top_p(row, case.p), case.k), case.m)
    top_p_last = oracle.top_p(oracle.min_p(oracle.top_k(row, case.k), case.m), case.p)
    assert [np.count_nonzero(each) for each in (expected(case), top_p_first, top_p_last)] == [5, 6, 4]


@pytest.mark.parametrize("by", BY)
def test_draws_are_independent_along_every_part_of_the_key(by: str) -> None:
    statistic, limit = chi_square(counted(CASES["plain"], by), oracle.softmax(LOGITS))
    assert statistic < limit


@pytest.mark.parametrize(
    "wrong",
    [
        Asked(temperature=1.03),
        Asked(bias={0: 0.05}),
        Asked(presence=0.05, output=(4,)),
        Asked(repetition=1.03, prompt=(0, 4, 12)),
    ],
)
def test_the_test_of_odds_notices_what_is_off_by_a_few_percent(wrong: Asked) -> None:
    statistic, limit = chi_square(counted(CASES["plain"], "position"), expected(wrong))
    assert statistic > limit


def test_consecutive_draws_are_independent() -> None:
    logits, scratch = np.zeros(4, np.float32), SamplerScratch.allocate(4)
    draws = [sample_row(logits, SamplingParams(), NoiseKey(9, 0, n), scratch).token_id for n in range(20_000)]
    pairs = np.zeros(16, np.int64)
    np.add.at(pairs, 4 * np.array(draws[0::2]) + np.array(draws[1::2]), 1)
    statistic, limit = chi_square(pairs, np.full(16, 1 / 16))
    assert statistic < limit


def many() -> Iterator[tuple[np.ndarray, SamplingParams, NoiseKey, History]]:
    """Rows of one vocabulary with all kinds of parameters, greedy ones between them."""
    rng = np.random.default_rng(7)
    kinds = (
        {"temperature": 0},
        {"top_k": 9_999_999},
        {"top_k": 3, "logprobs": 2},
        {"top_p": 0.5},
        {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.25},
        {"min_p": 0.2, "temperature": 2.0},
        {"temperature": 0, "logprobs": 5},
        {"logit_bias": {5: 3.5, 900: -100}, "allowed_token_ids": range(0, 1003, 7), "frequency_penalty": -0.5},
        {},
    )
    for position in range(90):
        logits = (rng.standard_normal(1003) * 3).astype(np.float32)
        ids = [rng.integers(1003, size=size).astype(np.int32) for size in (30, position, 3)]
        key = NoiseKey(position % 3 - 1, position % 2, position)
        yield logits, SamplingParams(**kinds[position % 9]), key, History(*ids)


def in_scratch(request: tuple[np.ndarray, SamplingParams, NoiseKey, History], scratch: SamplerScratch) -> SampleResult:
    logits, params, key, history = request
    return sample_row(logits, params, key, scratch, history)


def test_a_row_does_not_depend_on_what_was_sampled_before_it() -> None:
    alone = [in_scratch(each, SamplerScratch.allocate(1003)) for each in many()]
    shared = SamplerScratch.allocate(1003)
    for array in shared:
        array.fill(-1 if array.dtype == np.int32 else np.nan)
    assert [in_scratch(each, shared) for each in many()] == alone
    assert [in_scratch(each, shared) for each in reversed(list(many()))] == alone[::-1]


@pytest.mark.parametrize("garbage", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("V", [1, 7, 16, 50, 64, 65, 1003])
@pytest.mark.parametrize("start", [0, 1, 5])
def test_nothing_beyond_the_row_is_read_and_nothing_of_it_written(garbage: float, V: int, start: int) -> None:
    buffer = np.full(V + 64, garbage, np.float32)
    row = buffer[start : start + V]
    row[:] = np.random.default_rng(V).standard_normal(V)
    before = buffer.copy()
    tokens = np.arange(V, dtype=np.int32)
    history = History(tokens, tokens[::3].copy(), tokens[1:2])
    biased = {
        "logit_bias": {V - 1: 1.0},
        "repetition_penalty": 1.5,
        "frequency_penalty": 1,
        "allowed_token_ids": [0, V - 1],
    }
    for params in ({}, {"temperature": 0, "logprobs": 20}, {"top_p": 0.7, "top_k": 40}, biased):
        arguments = (SamplingParams(**params), NoiseKey(1, 0, 0), SamplerScratch.allocate(V), history)
        result = sample_row(row, *arguments)
        assert result == sample_row(row.copy(), *arguments)
        assert 0 <= result.token_id < V
    assert buffer.tobytes() == before.tobytes()


def sampled(logits: list[float], position: int = 0, **params: object) -> SampleResult:
    row = np.array(logits, np.float32)
    return sample_row(row, SamplingParams(**params), NoiseKey(1, 0, position), SamplerScratch.allocate(row.size))


@given(st.lists(st.sampled_from([-np.inf, -3e38, -1.0, -0.0, 0.0, 1e-45, 1.0, 3e38, np.inf]), min_size=1, max_size=300))
def test_greedy_is_the_lowest_id_of_the_largest_logit(logits: list[float]) -> None:
    logits[len(logits) // 2] = max(logits[len(logits) // 2], 0.0)
    for temperature in (0, 1e-300):
        assert sampled(logits, temperature=temperature).token_id == int(np.argmax(logits))


@pytest.mark.parametrize("temperature", [1e-4, 3e-4, 1e-30, 1e-44])
def test_tiny_temperatures_approach_greedy(temperature: float) -> None:
    logits = [1.0, 3.0, 2.0, -100.0, NEVER]
    assert {sampled(logits, n, temperature=temperature).token_id for n in range(200)} == {1}
    tied = {sampled([0.0, 3.0, 3.0], n, temperature=temperature).token_id for n in range(200)}
    assert tied == {1, 2}


@pytest.mark.parametrize("params", [{}, {"temperature": 0}, {"top_p": 0.1}, {"top_k": 1}, {"min_p": 1.0}])
def test_plus_infinity_wins(params: dict[str, float]) -> None:
    assert {sampled([5.0, np.inf, 3.0], n, **params).token_id for n in range(50)} == {1}


@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1, -(2**63), -9007199254740991, 42])
def test_every_int64_is_a_seed(seed: int) -> None:
    row, scratch = np.zeros(100, np.float32), SamplerScratch.allocate(100)

    def run() -> list[int]:
        return [sample_row(row, SamplingParams(seed=seed), NoiseKey(seed, 0, n), scratch).token_id for n in range(20)]

    assert run() == run()
    assert len(set(run())) > 10


def test_seeds_choices_and_positions_give_different_texts() -> None:
    row, scratch = np.zeros(1000, np.float32), SamplerScratch.allocate(1000)
    texts = {
        tuple(sample_row(row, SamplingParams(), NoiseKey(seed, choice, n), scratch).token_id for n in range(8))
        for seed in (-1, 0, 1, 2**32, 2**63 - 1, -(2**63))
        for choice in range(20)
    }
    assert len(texts) == 120


@pytest.mark.parametrize("params", [{}, {"temperature": 0}, {"logprobs": 5}])
@pytest.mark.parametrize("nan", [np.nan, -np.nan])
@pytest.mark.parametrize("place", [0, 15, 16, 47, 63, 64, 90, 128, 132])
def test_nan_is_an_error_and_not_a_token(params: dict[str, float], nan: float, place: int) -> None:
    logits = np.zeros(133, np.float32)
    logits[place] = nan
    with pytest.raises(ComputationError, match=rf"id {place} \(of 133\) at position 8 is NaN.*check the file"):
        sampled(list(logits), 8, **params)


@pytest.mark.parametrize("params", [{}, {"temperature": 0}, {"logprobs": 5}])
def test_no_candidate_is_an_error(params: dict[str, float]) -> None:
    with pytest.raises(ComputationError, match=r"all 37 logits at position 8 are -inf.*check the file"):
        sampled([NEVER] * 37, 8, **params)
