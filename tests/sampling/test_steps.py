"""Each step against float64, published cases and the order that says which token goes first."""

import json
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import sampling_oracle as oracle
from hypothesis import given
from hypothesis import strategies as st

from cutaway.sampling import steps
from cutaway.sampling.row import SamplerScratch, argmax, copy_tail, largest, temperature

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "fixtures" / "sampler_vectors.json").read_text())
STEPS = ("temp", "top_k", "top_p", "min_p")
ELSEWHERE = ("penalties",)
"""Kinds of published cases that ``test_adjust`` runs."""
SLACK = 2e-6  # of a probability: float32 weights and their sum


def narrowed(logits: np.ndarray, t: float = 1.0, k: int = 0, p: float = 1.0, m: float = 0.0) -> np.ndarray:
    """The distribution [V] float64 that the compiled steps leave."""
    scratch = SamplerScratch.allocate(logits.size)
    copy_tail(logits, scratch.tail)
    peak = largest(logits, scratch.tail)
    if t == 0:
        chosen = np.zeros(logits.size)
        chosen[argmax(logits, scratch.tail, peak)] = 1
        return chosen
    temperature(logits, scratch.tail, peak, np.float32(t), scratch.distances)
    steps.top_k(scratch.distances, k, scratch.weights, scratch.buckets)
    steps.top_p(scratch.distances, p, scratch.weights, scratch.buckets)
    steps.min_p(scratch.distances, m)
    assert np.isinf(scratch.distances[logits.size :]).all()
    weights = np.exp(-scratch.distances[: logits.size].astype(np.float64))
    return weights / weights.sum()


@st.composite
def rows(draw: st.DrawFn) -> np.ndarray:
    """Rows of any length, some with many equal logits, some with masked ones, flat or steep."""
    V = draw(st.integers(1, 400))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x = rng.standard_normal(V) * draw(st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 10.0, 1e4]))
    if draw(st.booleans()):
        x = np.round(x)
    if draw(st.booleans()):
        x[rng.random(V) < 0.5] = -np.inf
        x[rng.integers(V)] = draw(st.sampled_from([0.0, -50.0, 3e38]))
    return x.astype(np.float32)


def test_every_published_case_is_run() -> None:
    assert {case["sampler"] for case in VECTORS["cases"]} == {*STEPS, *ELSEWHERE}


@pytest.mark.parametrize("case", [case for case in VECTORS["cases"] if case["sampler"] in STEPS])
def test_published_cases(case: dict[str, Any]) -> None:
    logits = np.log(np.array(case["probs"])).astype(np.float32)
    argument = dict(zip(STEPS, "tkpm", strict=True))[case["sampler"]]
    result = narrowed(logits, **{argument: case["args"][0]})
    expected = [each for each in case["expected"] if each > 0]
    np.testing.assert_allclose(sorted(result[result > 0]), sorted(expected), atol=1e-5)


@pytest.mark.parametrize("queue", VECTORS["queues"], ids=lambda queue: queue["order"] + str(queue["top_p"]))
def test_published_queues(queue: dict[str, Any]) -> None:
    # Probabilities proportional to the id, as in the cases' source; ours is the order k, p, m.
    assert queue["order"] in ("k", "p", "m", "kp", "pm")
    with np.errstate(divide="ignore"):
        logits = np.log(np.arange(queue["n_vocab"])).astype(np.float32)
    order = queue["order"]
    arguments = {
        "k": queue["top_k"] if "k" in order else 0,
        "p": queue["top_p"] if "p" in order else 1.0,
        "m": queue["min_p"] if "m" in order else 0.0,
    }
    expected = oracle.filtered(logits, 1.0, **arguments)
    result = narrowed(logits, **arguments)
    assert (np.flatnonzero(result) == np.flatnonzero(expected)).all()
    np.testing.assert_allclose(result, expected, rtol=1e-5)


@given(rows(), st.sampled_from([0.0, 1e-45, 1e-4, 3e-4, 0.5, 1.0, 100.0]))
def test_temperature_divides_and_never_overflows(logits: np.ndarray, t: float) -> None:
    result = narrowed(logits, t=t)
    assert np.isfinite(result).all()
    first = oracle.order(logits)[0]
    if t < 1e-44:
        assert result[first] == result.max()
    else:
        np.testing.assert_allclose(result, oracle.softmax(logits, np.float64(np.float32(t))), atol=2e-6)


@given(rows(), st.integers(1, 500))
def test_top_k_keeps_exactly_the_first_k(logits: np.ndarray, k: int) -> None:
    finite = np.isfinite(logits).sum()
    kept = np.flatnonzero(kept_mask(logits, k=k))
    assert kept.tolist() == sorted(oracle.order(distance_order(logits))[: min(k, finite)].tolist())


def distance_order(logits: np.ndarray) -> np.ndarray:
    """Minus the float32 distances: the values whose order the steps follow (rounding may make two logits equal)."""
    with np.errstate(over="ignore"):
        return -(logits.max() - logits)


def kept_mask(logits: np.ndarray, k: int = 0, p: float = 1.0, m: float = 0.0) -> np.ndarray:
    """[V] bool: which tokens the steps keep at temperature 1."""
    scratch = SamplerScratch.allocate(logits.size)
    copy_tail(logits, scratch.tail)
    temperature(logits, scratch.tail, largest(logits, scratch.tail), np.float32(1), scratch.distances)
    steps.top_k(scratch.distances, k, scratch.weights, scratch.buckets)
    steps.top_p(scratch.distances, p, scratch.weights, scratch.buckets)
    steps.min_p(scratch.distances, m)
    return np.isfinite(scratch.distances[: logits.size])


@given(rows(), st.floats(1e-6, 1.0 - 1e-6))
def test_top_p_keeps_the_fewest_first_that_reach_p(logits: np.ndarray, p: float) -> None:
    probabilities = oracle.softmax(distance_order(logits))
    kept = kept_mask(logits, p=p)
    ranks = oracle.order(distance_order(logits))
    count = int(kept.sum())
    assert sorted(ranks[:count].tolist()) == np.flatnonzero(kept).tolist()
    before = probabilities[ranks[: count - 1]].sum()
    assert before < p + SLACK
    assert before + probabilities[ranks[count - 1 :][:1]].sum() >= p - SLACK


@given(rows(), st.floats(1e-30, 1.0))
def test_min_p_keeps_what_is_likely_enough(logits: np.ndarray, m: float) -> None:
    ratio = np.exp(distance_order(logits).astype(np.float64))
    kept = kept_mask(logits, m=m)
    assert (kept[ratio >= m * (1 + 1e-5)]).all()
    assert not (kept[ratio < m * (1 - 1e-5)]).any()
    assert kept[logits.argmax()]


@given(rows(), st.integers(1, 100), st.floats(0.01, 0.99), st.floats(0.001, 1.0))
def test_steps_follow_each_other_on_what_is_left(logits: np.ndarray, k: int, p: float, m: float) -> None:
    # Top-p takes its share of what top-k left; a share taken of the whole row, or min-p first, gives other sets.
    together = kept_mask(logits, k=k, p=p, m=m)
    after_k = np.where(kept_mask(logits, k=k), logits, np.float32(-np.inf))
    after_p = np.where(kept_mask(after_k, p=p), logits, np.float32(-np.inf))
    assert (together == kept_mask(after_p, m=m)).all()


def test_top_p_after_top_k_takes_its_share_of_the_rest() -> None:
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1])).astype(np.float32)
    assert np.flatnonzero(kept_mask(logits, p=0.55)).tolist() == [0, 1]
    assert np.flatnonzero(kept_mask(logits, k=2, p=0.55)).tolist() == [0]  # 0.4 / 0.7 reaches it


@pytest.mark.parametrize("V", [1, 15, 16, 17, 100, 1000])
def test_equal_logits_go_by_id(V: int) -> None:
    logits = np.zeros(V, np.float32)
    for count in {1, V // 2 or 1, V}:
        assert np.flatnonzero(kept_mask(logits, k=count)).tolist() == list(range(count))
        assert np.flatnonzero(kept_mask(logits, p=(count - 0.5) / V)).tolist() == list(range(count))
    assert kept_mask(logits, m=1.0).all()


@pytest.mark.parametrize("k", [0, -1, 1000, 9_999_999])
def test_top_k_keeps_all_when_off_or_larger_than_the_vocabulary(k: int) -> None:
    logits = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    assert kept_mask(logits, k=k).all()


def test_the_cut_is_exact_between_neighbouring_floats() -> None:
    # All distances share their upper 21 bits, so that only the last of the three passes tells them apart.
    steps_of_ulp = np.arange(1000, dtype=np.int32)
    distances = np.full(1024, np.inf, np.float32)
    distances[:1000] = (np.float32(4.0).view(np.int32) + np.random.default_rng(0).permutation(steps_of_ulp)).view(
        np.float32
    )
    expected = np.sort(distances)[:321]
    scratch = SamplerScratch.allocate(1000)
    steps.top_k(distances, 321, scratch.weights, scratch.buckets)
    assert (np.sort(distances)[:321] == expected).all()
    assert np.isinf(np.sort(distances)[321:]).all()


@numba.njit
def _exponentials(distances: Any, weights: Any) -> Any:
    return steps.exponentials(distances, weights)


@pytest.mark.parametrize("V", [5, 1000, 49_152, 262_144])
@pytest.mark.parametrize("scale", [0.0, 1.0, 4.0])
def test_the_sum_of_exponentials_is_close_to_float64(V: int, scale: float) -> None:
    distances = np.full(-(-V // 64) * 64, np.inf, np.float32)
    distances[:V] = np.abs(np.random.default_rng(V).standard_normal(V) * scale)
    distances[0] = 0
    weights = np.zeros_like(distances)
    total = _exponentials(distances, weights)
    exact = np.exp(-distances.astype(np.float64))
    assert abs(total / exact.sum() - 1) < 1e-6
    np.testing.assert_allclose(weights[:V], exact[:V], rtol=5e-7)
