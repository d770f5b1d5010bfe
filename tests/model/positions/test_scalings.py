"""Tables of rotary and sinusoidal positions against transformers', and what can't be a table.

The fixture is made by ``oracles/make_rope_fixture.py``.
"""

import decimal
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway.errors import ModelFileError
from cutaway.model.positions import SCALINGS, Rope, inverse_frequencies, learned, rotary, sinusoidal

FIXTURE = json.loads((Path(__file__).parents[2] / "fixtures" / "rope_tables.json").read_text())
TRAINED = 8192  # positions, of all of the fixture's models
FACTORS = {"factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}
FACTORS |= {"attention_factor", "truncate"}


def rope_of(case: dict[str, Any]) -> Rope:
    """Our description of the table for which transformers was asked."""
    parameters = {name: float(value) for name, value in case.items() if name in FACTORS}
    if "original_max_position_embeddings" in case:
        parameters["original"] = case["original_max_position_embeddings"]
    if case["rope_type"] == "dynamic":
        parameters |= {"original": TRAINED, "length": case["seq_len"]}
    scaling = "none" if case["rope_type"] == "default" else case["rope_type"]
    return Rope(case["rope_theta"], case["head_dim"], scaling, parameters)


def test_the_fixture_has_every_scaling() -> None:
    assert {rope_of(case).scaling for case in FIXTURE["cases"].values()} == set(SCALINGS)


@pytest.mark.parametrize("name", FIXTURE["cases"])
def test_a_table_is_what_transformers_computes(name: str) -> None:
    case = FIXTURE["cases"][name]
    positions = rotary([rope_of(case)], model_width=256)
    theirs = np.array(case["inverse_frequencies"])
    assert positions.inverse_frequencies.shape == (1, case["head_dim"] // 2)
    assert (np.abs(positions.inverse_frequencies[0] - theirs) <= 1e-6 * theirs).all()
    assert positions.magnitudes.tolist() == [pytest.approx(case["magnitude"], rel=1e-12)]
    assert positions.rows.shape == (0, 256)


def test_each_scaling_changes_the_table() -> None:
    """The control: no two of the fixture's tables of one base and width are within the tolerance of each other."""
    tables = {
        name: np.array(case["inverse_frequencies"])
        for name, case in FIXTURE["cases"].items()
        if case["head_dim"] == 64 and case["rope_theta"] == 500_000.0
    }
    for one, table in tables.items():
        for other, another in tables.items():
            if one < other and {one, other} != {"none", "dynamic, short"}:
                assert (np.abs(table - another) > 1e-6 * table).any(), (one, other)


def test_linear_divides_once_and_dynamic_not_at_all() -> None:
    """Within the first context, dynamic changes nothing, whatever its factor."""
    plain = inverse_frequencies(500_000.0, 64)
    parameters = {"factor": 2.0}
    assert rotary([Rope(5e5, 64, "linear", parameters)], 256).inverse_frequencies[0].tolist() == (plain / 2).tolist()
    short = {**parameters, "original": 8192.0, "length": 8192.0}
    assert rotary([Rope(5e5, 64, "dynamic", short)], 256).inverse_frequencies[0].tolist() == plain.tolist()


def test_a_files_divisors() -> None:
    divisors = tuple(1.0 + i / 7 for i in range(32))
    table = rotary([Rope(5e5, 64, divisors=divisors)], 256).inverse_frequencies[0]
    assert np.allclose(table, inverse_frequencies(5e5, 64) / divisors, rtol=1e-15, atol=0)


def test_two_tables_and_none() -> None:
    two = rotary([Rope(1e6, 32), Rope(1e4, 32)], 256)
    assert two.inverse_frequencies.tolist() == [inverse_frequencies(base, 32).tolist() for base in (1e6, 1e4)]
    none = rotary([], 256)
    assert none.inverse_frequencies.shape == (0, 0)
    assert none.magnitudes.shape == (0,)
    assert none.rows.shape == (0, 256)


def test_the_callers_decimal_context_does_not_matter() -> None:
    rope = Rope(5e5, 64, "yarn", {"factor": 4.0, "original": 2048.0})
    expected = rotary([rope], 256).inverse_frequencies.tolist()
    with decimal.localcontext() as context:
        context.prec, context.rounding = 3, decimal.ROUND_UP
        assert rotary([rope], 256).inverse_frequencies.tolist() == expected


def test_sinusoids_are_transformers() -> None:
    """Which has the sines first and the cosines behind them; the paper has them in turn."""
    theirs = np.array(FIXTURE["sinusoids"])
    count, width = theirs.shape
    positions = sinusoidal(count, width)
    assert positions.rows.dtype == np.float32
    assert np.abs(positions.rows[:, 0::2] - theirs[:, : width // 2]).max() <= 1e-6
    assert np.abs(positions.rows[:, 1::2] - theirs[:, width // 2 :]).max() <= 1e-6
    assert positions.inverse_frequencies.size == 0


def test_learned_rows_are_kept() -> None:
    rows = np.random.default_rng(0).standard_normal((7, 24)).astype(np.float32)
    assert np.array_equal(learned(rows).rows, rows)
    assert learned(rows).inverse_frequencies.size == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scaling": "foo"}, r"'foo'; Cutaway knows none, linear, dynamic, llama3, yarn"),
        ({"scaling": "longrope", "parameters": {"factor": 2.0}}, r"'longrope'; Cutaway knows"),
        ({"scaling": "linear"}, r"'linear' of rotary positions lacks the parameters factor"),
        ({"scaling": "llama3", "parameters": {"factor": 8.0}}, r"lacks the parameters high_freq_factor, low_freq_"),
        ({"scaling": "linear", "parameters": {"factor": 2.0, "bar": 1.0}}, r"does not have the parameters bar"),
        ({"scaling": "linear", "parameters": {"factor": 0.0}}, r"must be positive.*'factor': 0\.0"),
        ({"scaling": "linear", "parameters": {"factor": float("nan")}}, r"must be positive"),
        ({"base": -1.0}, r"must be positive; the base is -1\.0"),
        ({"divisors": (1.0,) * 31 + (0.0,)}, r"must be positive"),
    ],
)
def test_what_is_not_known_is_an_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        Rope(**{"base": 10_000.0, "width": 64, **arguments})


@pytest.mark.parametrize(
    "rope",
    [
        Rope(1.0, 64, "yarn", {"factor": 4.0, "original": 2048.0}),
        Rope(5e5, 64, "llama3", {"factor": 8.0, "low_freq_factor": 2.0, "high_freq_factor": 2.0, "original": 8192.0}),
        Rope(5e5, 2, "dynamic", {"factor": 8.0, "length": 9.0, "original": 8.0}),
    ],
    ids=lambda rope: rope.scaling,
)
def test_numbers_without_a_table_are_an_error(rope: Rope) -> None:
    with pytest.raises(ModelFileError, match=rf"can't be scaled by '{rope.scaling}'.*damaged"):
        rotary([rope], 256)
