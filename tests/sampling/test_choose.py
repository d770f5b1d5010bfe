"""The declared order, opened: each step's values against float64, the same bits closed, and no order but this one."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import sampling_oracle as oracle
from hypothesis import given
from hypothesis import strategies as st
from sampling_oracle import Asked

from cutaway.errors import InvalidRequestError
from cutaway.sampling import choose
from cutaway.sampling.history import EMPTY_HISTORY, History
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, SampleResult, noise_row, sample_open, sample_row

ADJUSTED = ("logits", "logit_bias", "masks", "penalties")
NARROWED = ("temperature", "top_k", "top_p", "min_p")


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int32)


class Request(NamedTuple):
    """A row and all that is asked of it, for the sampler and for its oracle."""

    logits: np.ndarray
    asked: Asked
    num_logprobs: int | None
    key: NoiseKey

    @property
    def params(self) -> SamplingParams:
        a = self.asked
        return SamplingParams(
            logit_bias=a.bias,
            allowed_token_ids=a.allowed,
            repetition_penalty=a.repetition,
            presence_penalty=a.presence,
            frequency_penalty=a.frequency,
            temperature=a.temperature,
            top_k=a.k,
            top_p=a.p,
            min_p=a.m,
            logprobs=self.num_logprobs,
        )

    @property
    def history(self) -> History:
        return History(ids(*self.asked.prompt), ids(*self.asked.output), ids(*self.asked.forbidden))

    def closed(self, scratch: SamplerScratch) -> SampleResult:
        return sample_row(self.logits, self.params, self.key, scratch, self.history)

    def opened(self, scratch: SamplerScratch) -> tuple[SampleResult, dict[str, np.ndarray]]:
        """The result and a copy of what the tap saw, by name in its order."""
        seen: dict[str, np.ndarray] = {}

        def tap(name: str, values: Any) -> None:
            assert name not in seen
            seen[name] = values.copy()

        return sample_open(self.logits, self.params, self.key, scratch, self.history, tap), seen


eighths = st.integers(-64, 64).map(lambda n: n / 8)


@st.composite
def requests(draw: st.DrawFn, exact: bool) -> Request:
    """Any row with anything asked of it.

    If ``exact``, all numbers have so few bits that adjusted logits are the same in float32 and in float64: ties are
    ties in both. At least one token can be drawn.
    """
    V = draw(st.integers(2, 130))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    logits = rng.standard_normal(V) * draw(st.sampled_from([0.25, 1.0, 8.0]))
    if exact:
        logits = np.round(logits * 4) / 4
    tokens = st.integers(0, V - 1)
    if draw(st.booleans()):
        logits[rng.random(V) < 0.3] = -np.inf
    survivor = draw(tokens)
    logits[survivor] = 0.5

    def some(values: st.SearchStrategy[Any], off: Any) -> Any:
        return draw(st.one_of(st.just(off), values))

    few = st.lists(tokens, max_size=12)
    number = eighths if exact else st.floats(-8, 8, width=32)
    allowed = some(few.map(lambda others: sorted({survivor, *others})), None)
    quarters = st.integers(-8, 8).map(lambda n: n / 4)
    asked = Asked(
        bias=some(st.dictionaries(tokens, number, max_size=8), {}),
        allowed=allowed,
        forbidden=[token for token in some(few, []) if token != survivor],
        repetition=some(st.sampled_from([0.25, 0.5, 2.0, 4.0]) if exact else st.floats(0.1, 10), 1.0),
        presence=some(quarters if exact else st.floats(-2, 2), 0.0),
        frequency=some(quarters if exact else st.floats(-2, 2), 0.0),
        temperature=some(st.sampled_from([0.25, 0.5, 2.0, 4.0]), 1.0),
        k=some(st.integers(1, 140), 0),
        p=some(st.floats(0.05, 0.999), 1.0),
        m=some(st.floats(0.001, 1.0), 0.0),
        prompt=draw(few),
        output=draw(few),
    )
    key = NoiseKey(draw(st.integers(-(2**63), 2**63 - 1)), draw(st.integers(0, 9)), draw(st.integers(0, 10**6)))
    return Request(logits.astype(np.float32), asked, draw(st.sampled_from([None, 0, 3])), key)


def bits(result: SampleResult) -> list[Any]:
    """All of a result, so that == compares every bit (there is no NaN and no -0 in it)."""
    values = [result.logprob, result.noise, *[value for _, value in result.top_logprobs]]
    assert not any(value is not None and (np.isnan(value) or (value == 0 and np.signbit(value))) for value in values)
    return [result.token_id, result.rank, values, [token for token, _ in result.top_logprobs]]


@given(requests(exact=False))
def test_the_noise_that_won_is_told(request: Request) -> None:
    V = request.logits.size
    result = request.closed(SamplerScratch.allocate(V))
    assert result.noise == noise_row(request.key, V)[result.token_id]


@given(requests(exact=False))
def test_open_and_closed_have_the_same_bits(request: Request) -> None:
    closed, opened = SamplerScratch.allocate(request.logits.size), SamplerScratch.allocate(request.logits.size)
    before = request.logits.tobytes()
    result = request.closed(closed)
    again, seen = request.opened(opened)
    assert bits(result) == bits(again)
    for name, ours, theirs in zip(SamplerScratch._fields, closed, opened, strict=True):
        assert ours.tobytes() == theirs.tobytes(), name
    assert tuple(seen) == ("logits", *choose.STEPS) == (*ADJUSTED, *NARROWED)
    assert request.logits.tobytes() == before
    assert seen["logits"].tobytes() == before


@given(requests(exact=False))
def test_every_adjustment_agrees_with_float64(request: Request) -> None:
    _, seen = request.opened(SamplerScratch.allocate(request.logits.size))
    expected = oracle.trace(request.logits, request.asked)
    for ours, theirs in (("logit_bias", "logit_bias"), ("masks", "masks"), ("penalties", "counts")):
        np.testing.assert_allclose(seen[ours], expected[theirs], rtol=1e-6, atol=2e-5)


def with_values(asked: Asked, p: float, m: float) -> Asked:
    return asked._replace(p=min(p, 1.0) if asked.p < 1 else 1.0, m=min(max(m, 0.0), 1.0))


@given(requests(exact=True))
def test_the_whole_chain_agrees_with_float64(request: Request) -> None:
    """Which tokens are left after each step, their probabilities, and which of them wins with its noise."""
    V = request.logits.size
    result, seen = request.opened(SamplerScratch.allocate(V))
    asked = request.asked
    exact = oracle.trace(request.logits, asked)
    # float32 sums may decide otherwise where a sum or a ratio lies within 10⁻⁵ of its limit.
    fewest = oracle.trace(request.logits, with_values(asked, asked.p - 1e-5, asked.m * (1 + 1e-5)))
    most = oracle.trace(request.logits, with_values(asked, asked.p + 1e-5, asked.m * (1 - 1e-5)))
    assert (seen["penalties"] == exact["counts"]).all()
    for name in NARROWED:
        distances, padding = seen[name][:V].astype(np.float64), seen[name][V:]
        assert np.isinf(padding).all()
        kept = np.isfinite(distances)
        assert (kept[np.isfinite(fewest[name])]).all(), name
        assert not kept[np.isneginf(most[name])].any(), name
        if (np.isfinite(fewest[name]) == np.isfinite(most[name])).all():
            np.testing.assert_allclose(oracle.softmax(-distances), oracle.softmax(exact[name]), atol=2e-6)

    words = [oracle.noise_word(request.key.seed, request.key.choice, request.key.position, id_) for id_ in range(V)]
    noise = oracle.gumbel(words)
    exponential = np.exp(-noise)
    rounding = 2.0**-24 / (np.exp(-exponential) * exponential)  # of the uniform number, near 1, to float32
    assert (np.abs(noise_row(request.key, V) - noise) <= 1e-5 * (1 + np.abs(noise)) + rounding).all()
    scores = np.where(np.isfinite(seen["min_p"][:V]), noise - seen["min_p"][:V], -np.inf)
    assert scores[result.token_id] >= scores.max() - 1e-4


@given(requests(exact=False))
def test_logprobs_and_rank_are_the_raw_rows_whatever_is_asked(request: Request) -> None:
    scratch = SamplerScratch.allocate(request.logits.size)
    result = request._replace(num_logprobs=3).closed(scratch)
    plain = sample_row(request.logits, SamplingParams(logprobs=3), request.key, scratch)
    assert result.top_logprobs == plain.top_logprobs
    expected = oracle.log_softmax(request.logits)
    assert result.logprob == pytest.approx(expected[result.token_id], abs=2e-6, rel=1e-6)
    assert result.rank == 1 + int((request.logits > request.logits[result.token_id]).sum())


@given(requests(exact=False))
def test_greedy_takes_the_largest_adjusted_logit(request: Request) -> None:
    request = request._replace(asked=request.asked._replace(temperature=0.0))
    result, seen = request.opened(SamplerScratch.allocate(request.logits.size))
    assert tuple(seen) == ADJUSTED
    assert result.token_id == seen["penalties"].argmax()
    assert bits(result) == bits(request.closed(SamplerScratch.allocate(request.logits.size)))


CASE = Asked(
    bias={0: 1.0, 2: -1.0, 5: 2.0},
    allowed=[0, 1, 2, 3, 4, 6, 7, 8, 9, 10],
    forbidden=[6],
    repetition=2.0,
    presence=0.5,
    frequency=0.25,
    temperature=2.0,
    k=6,
    p=0.86,
    m=0.21,
    prompt=[0, 3],
    output=[1, 1, 7],
)
"""All steps do something: 12 tokens, 9 after the masks, 6, 5 and 4 after top-k, top-p and min-p."""
CASE_LOGITS = np.array(
    [-1.375, 3.875, -1.875, -0.5, 2.5, 0.625, 0.25, -0.375, 0.125, -1.125, -0.25, -0.125], np.float32
)
NEIGHBOURS = list(zip(oracle.ORDER[:-1], oracle.ORDER[1:], strict=True))
ALIKE = {("logit_bias", "masks"), ("masks", "repetition"), ("temperature", "top_k")}
"""Neighbours that commute: only the values between them tell their order."""


def swapped(first: str, second: str) -> tuple[str, ...]:
    names = list(oracle.ORDER)
    place = names.index(first)
    names[place : place + 2] = [second, first]
    return tuple(names)


def shown(name: str, row: np.ndarray) -> np.ndarray:
    """A row as the tap shows it: logits before the temperature, from there on distances."""
    return row.max() - row if name in NARROWED else row


def same(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return np.allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", [CASE, CASE._replace(m=0.0)])
def test_the_order_is_the_declared_one(case: Asked) -> None:
    request = Request(CASE_LOGITS, case, None, NoiseKey(1, 0, 0))
    _, seen = request.opened(SamplerScratch.allocate(CASE_LOGITS.size))
    seen = {name: values[: CASE_LOGITS.size] for name, values in seen.items()}
    expected = oracle.trace(CASE_LOGITS, case)
    ours = {name: seen[{"counts": "penalties"}.get(name, name)] for name in oracle.ORDER if name != "repetition"}
    for name, values in ours.items():
        assert same(values, shown(name, expected[name])), name


@pytest.mark.parametrize(("first", "second"), NEIGHBOURS)
def test_two_neighbours_swapped_would_be_noticed(first: str, second: str) -> None:
    # What top-p keeps of the whole row and not of top-k's rest, min-p would drop.
    case = CASE._replace(m=0.0) if (first, second) == ("top_k", "top_p") else CASE
    declared, other = oracle.trace(CASE_LOGITS, case), oracle.trace(CASE_LOGITS, case, swapped(first, second))
    visible = [name for name in oracle.ORDER if name != "repetition"]
    assert any(not same(shown(name, declared[name]), shown(name, other[name])) for name in visible)
    ends = [oracle.softmax(list(each.values())[-1]) for each in (declared, other)]
    assert np.allclose(*ends) == ((first, second) in ALIKE)


def test_every_step_of_the_case_does_something() -> None:
    before = CASE_LOGITS.astype(np.float64)
    for name, after in oracle.trace(CASE_LOGITS, CASE).items():
        assert not np.array_equal(before, after), name
        before = after


def test_min_tokens_wins_over_a_bias() -> None:
    # min_tokens 4, eos forced by its bias, temperature 0: four tokens that are not eos, then eos.
    eos, V = 3, 10
    params = SamplingParams(min_tokens=4, logit_bias={eos: 100}, temperature=0, max_tokens=10)
    output: list[int] = []
    logits = np.linspace(-5, 5, V).astype(np.float32)
    scratch = SamplerScratch.allocate(V)
    while eos not in output:
        history = History(ids(1, 2), ids(*output), ids(eos) if len(output) < params.min_tokens else ids())
        output.append(sample_row(logits, params, NoiseKey(0, 0, len(output)), scratch, history).token_id)
    assert output == [9, 9, 9, 9, eos]


@pytest.mark.parametrize("temperature", [0, 0.7, 1.0, 2.0])
def test_a_bias_of_one_hundred_bans_or_forces(temperature: float) -> None:
    logits = (np.random.default_rng(0).standard_normal(500) * 6).astype(np.float32)
    best, worst = int(logits.argmax()), int(logits.argmin())
    scratch = SamplerScratch.allocate(500)

    def drawn(bias: dict[int, float]) -> set[int]:
        params = SamplingParams(logit_bias=bias, temperature=temperature)
        return {sample_row(logits, params, NoiseKey(1, 0, n), scratch).token_id for n in range(200)}

    assert drawn({worst: 100}) == {worst}
    assert best in drawn({})
    assert best not in drawn({best: -100})
    assert drawn({str(worst): 100, best: 100}) <= {best, worst}


@pytest.mark.parametrize("temperature", [3e-4, 1e-30, 1e-44, 1e-300])
def test_tiny_temperatures_approach_the_largest_adjusted_logit(temperature: float) -> None:
    logits = np.array([5.0, 3.0, -2.0, 4.5, -0.0, 0.0, -np.inf], np.float32)
    params = SamplingParams(
        logit_bias={3: -100, 2: 3, 6: 100}, repetition_penalty=2, presence_penalty=2, temperature=temperature
    )
    history = History(ids(0, 4), ids(0, 5), ids(1))  # 0: 5/2 - 2; 1: masked; 2: -2 + 3; 3: -95.5; 4, 5: ±0, one less 2
    scratch = SamplerScratch.allocate(logits.size)
    assert {sample_row(logits, params, NoiseKey(1, 0, n), scratch, history).token_id for n in range(100)} == {2}


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_an_error_says_what_masked_all_tokens(temperature: float) -> None:
    logits, key, scratch = np.zeros(37, np.float32), NoiseKey(0, 0, 8), SamplerScratch.allocate(37)
    both = SamplingParams(allowed_token_ids=[3, 4], temperature=temperature)
    expected = r"of 37 tokens at position 8 none is left: allowed_token_ids allows 2, .* forbid 3\. Allow"
    with pytest.raises(InvalidRequestError, match=expected):
        sample_row(logits, both, key, scratch, History(ids(), ids(), ids(3, 4, 5)))
    with pytest.raises(InvalidRequestError, match=r"none is left: bad_words and min_tokens forbid 37\. Allow"):
        sample_row(logits, SamplingParams(), key, scratch, History(ids(), ids(), ids(*range(37))))
    logits[3:5] = -np.inf
    with pytest.raises(InvalidRequestError, match=r"none is left: allowed_token_ids allows 2\. Allow"):
        sample_row(logits, both, key, scratch)
    with pytest.raises(InvalidRequestError, match=r"none is left"):
        sample_open(logits, both, key, scratch, EMPTY_HISTORY, lambda name, values: None)


@pytest.mark.parametrize("outside", [-1, 37, 64, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_id_outside_the_vocabulary_is_refused_and_nothing_is_written(outside: int, place: int) -> None:
    params = SamplingParams(presence_penalty=1, repetition_penalty=2, allowed_token_ids=[1, 2, 3])
    given_ids = [ids(1), ids(2), ids(3)]
    given_ids[place] = ids(1, outside)
    with pytest.raises(InvalidRequestError, match=r"at position 5 is outside the vocabulary, 0 to 36"):
        sample_row(
            np.zeros(37, np.float32), params, NoiseKey(0, 0, 5), SamplerScratch.allocate(37), History(*given_ids)
        )
    if outside >= 0:
        for asked in ({"allowed_token_ids": [1, outside]}, {"logit_bias": {outside: 1.0}}):
            with pytest.raises(InvalidRequestError, match="outside the vocabulary"):
                sample_row(
                    np.zeros(37, np.float32), SamplingParams(**asked), NoiseKey(0, 0, 5), SamplerScratch.allocate(37)
                )


@pytest.mark.parametrize("wrong", [np.zeros(2, np.int64), np.zeros((2, 2), np.int32)[:, 0], np.zeros(4, np.int32)[::2]])
def test_a_history_of_another_type_is_not_compiled_for(wrong: np.ndarray) -> None:
    with pytest.raises(AssertionError):
        sample_row(
            np.zeros(8, np.float32),
            SamplingParams(),
            NoiseKey(0, 0, 0),
            SamplerScratch.allocate(8),
            History(wrong, ids(), ids()),
        )


def test_a_read_only_row_is_sampled_too() -> None:
    logits = np.arange(8, dtype=np.float32)
    logits.setflags(write=False)
    params, scratch = SamplingParams(logit_bias={0: 100}, logprobs=2), SamplerScratch.allocate(8)
    result = sample_row(logits, params, NoiseKey(0, 0, 0), scratch)
    assert (result.token_id, result.rank) == (0, 8)
    assert len(choose.choose_compiled.signatures) == 1
