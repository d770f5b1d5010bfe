"""Rows that are sampled side by side are those that are sampled one by one, to the bit, by teams of any size."""

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cutaway.errors import ComputationError, InvalidRequestError
from cutaway.ops.cpu.threads import ThreadTeam, float_environment
from cutaway.sampling.choose import choose_compiled
from cutaway.sampling.history import EMPTY_HISTORY, History
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.rows import SamplerRoom, sample_rows
from cutaway.sampling.sampler import NoiseKey, Row, SampleResult, arguments_of, sample_row

V = 1003
KINDS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.7, "top_p": 0.9, "logprobs": 3},
    {"top_k": 20, "logprobs": 20},
    {"min_p": 0.05, "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.1},
    {"logit_bias": {3: 5.0, 900: -100.0}, "logprobs": 0},
]


def rows_of(seed: int, count: int) -> list[Row]:
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        logits = (4 * rng.standard_normal(V)).astype(np.float32)
        history = EMPTY_HISTORY
        if number % 3 == 0:
            history = History(*(rng.integers(0, V, length).astype(np.int32) for length in (7, number, 5)))
        params = SamplingParams(**KINDS[number % len(KINDS)])
        rows.append(Row(logits, params, NoiseKey(int(rng.integers(-99, 99)), number % 4, number), history))
    return rows


def alone(row: Row) -> SampleResult:
    with float_environment():
        return sample_row(row.logits, row.params, row.key, SamplerScratch.allocate(V), row.history)


@pytest.fixture(params=[1, 2, 3, 5])
def team(request: pytest.FixtureRequest) -> Iterator[ThreadTeam]:
    one = ThreadTeam(request.param)
    yield one
    one.close()


def test_rows_are_those_of_one_by_one(team: ThreadTeam) -> None:
    """The same room again and again, with more and fewer rows than members."""
    room = SamplerRoom(V, team.size)
    for seed, count in enumerate((1, 2, 17, 5, 3, 32)):
        rows = rows_of(seed, count)
        assert sample_rows(rows, team, room) == [alone(row) for row in rows]


def test_a_row_that_is_scored_for_others_has_its_log_probability_and_no_more(team: ThreadTeam) -> None:
    """What the parameters ask for stays as it is."""
    rows = rows_of(4, 12)
    plain = sample_rows(rows, team, SamplerRoom(V, team.size))
    scored = sample_rows([row._replace(is_scored=True) for row in rows], team, SamplerRoom(V, team.size))
    asked = [row._replace(params=dataclasses.replace(row.params, logprobs=0)) for row in rows]
    for row, one, other, full in zip(rows, plain, scored, map(alone, asked), strict=True):
        assert isinstance(one, SampleResult)
        assert isinstance(other, SampleResult)
        assert other == one._replace(logprob=full.logprob)
        assert other.logprob is not None
        assert (other.rank is None) == (row.params.logprobs is None)


def test_no_rank_is_counted_for_a_row_that_is_scored_for_others() -> None:
    row, scratch = rows_of(1, 1)[0]._replace(is_scored=True), SamplerScratch.allocate(V)
    full = row._replace(params=dataclasses.replace(row.params, logprobs=0))
    with float_environment():
        own, ranked = (choose_compiled(*arguments_of(each, scratch)) for each in (row, full))
    assert (own[:2], own[2]) == (ranked[:2], 0)
    assert ranked[2] >= 1


def test_an_error_is_its_row_s_alone(team: ThreadTeam) -> None:
    rows = rows_of(9, 7)
    rows[2].logits[5] = np.nan
    none_left = SamplingParams(allowed_token_ids=[4])
    rows[4] = Row(rows[4].logits, none_left, rows[4].key, History(*(np.array(ids, np.int32) for ids in ([], [], [4]))))
    found = sample_rows(rows, team, SamplerRoom(V, team.size))
    assert isinstance(found[2], ComputationError)
    assert str(found[2]).startswith("the logit of id 5 (of 1003) at position 2 is NaN")
    assert isinstance(found[4], InvalidRequestError)
    for number in (0, 1, 3, 5, 6):
        assert found[number] == alone(rows[number])


ROOM = """
from cutaway.engine.plan import resident_bytes
from cutaway.sampling.rows import SamplerRoom
before = resident_bytes()
room = SamplerRoom(1 << 21, 2)
print(sum(array.nbytes for member in range(2) for array in room.scratch(member)), resident_bytes() - before)
"""


def test_a_room_is_in_memory_from_the_start() -> None:
    """A zeroed array that nobody has written to is not. In a process of its own, which has no memory to use again."""
    run = subprocess.run([sys.executable, "-c", ROOM], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    size, more = map(int, run.stdout.split())
    assert size > 60 << 20
    assert more > size - (8 << 20)


def test_each_member_samples_a_part() -> None:
    """Two rows of two members go through two rooms, so that both may be sampled at once."""
    room = SamplerRoom(V, 2)
    rows = rows_of(3, 2)
    rows = [row._replace(params=SamplingParams(top_k=5)) for row in rows]
    two = ThreadTeam(2)
    try:
        sample_rows(rows, two, room)
    finally:
        two.close()
    kept = [room.scratch(member).distances[:V] for member in range(2)]
    assert [int(np.isfinite(each).sum()) for each in kept] == [5, 5]
    for row, distances in zip(rows, kept, strict=True):
        assert set(np.flatnonzero(np.isfinite(distances))) == set(np.argsort(-row.logits)[:5])
