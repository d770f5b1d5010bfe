"""Scalings of rotary positions, which let a model attend further than it was first trained: one function each.

In: the base, the number R of a head's numbers that are turned, and the scaling's own parameters. Out: inverse
frequencies (decimals, [R/2]), and the magnitude of cosines and sines. All run in the current decimal context.
Parameters have the names of a Hugging Face config; ``original`` is the context of the first training.
"""

from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from cutaway.model.positions.frequencies import exact_frequencies

TWO_PI: Final = Decimal("6.283185307179586476925286766559005768394338798750")
ONE: Final = Decimal(1)

Parameters: TypeAlias = Mapping[str, Decimal]
Scaled: TypeAlias = tuple[list[Decimal], Decimal]


class Scaling(NamedTuple):
    """A scaling, and the parameters that it needs and that it may have."""

    function: Callable[[Decimal, int, Parameters], Scaled]
    needs: frozenset[str]
    takes: frozenset[str] = frozenset()


def none(base: Decimal, width: int, parameters: Parameters) -> Scaled:
    """The frequencies as they are."""
    return exact_frequencies(base, width), ONE


def linear(base: Decimal, width: int, parameters: Parameters) -> Scaled:
    """Positions divided by a factor (Chen et al. 2023)."""
    return [frequency / parameters["factor"] for frequency in exact_frequencies(base, width)], ONE


def dynamic(base: Decimal, width: int, parameters: Parameters) -> Scaled:
    """A base that grows with the length, NTK-aware: base · (factor · length / original - (factor - 1))^(R/(R-2)).

    Positions are not divided besides. The length is one number for all positions, the longest context that the model
    is to serve: were it the sequence's present one, the keys in the cache would have been turned by other angles.
    """
    factor, length = parameters["factor"], max(parameters["length"], parameters["original"])
    stretch = factor * length / parameters["original"] - (factor - 1)
    return exact_frequencies(base * stretch ** (Decimal(width) / (width - 2)), width), ONE


def llama3(base: Decimal, width: int, parameters: Parameters) -> Scaled:
    """Long waves divided by the factor, short ones not, those between in proportion (Llama 3.1).

    A pair makes original / wavelength turns within the original context: short waves make more than high_freq_factor,
    long ones fewer than low_freq_factor.
    """
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    scaled = []
    for frequency in exact_frequencies(base, width):
        turns = parameters["original"] * frequency / TWO_PI
        kept = min(ONE, max(Decimal(0), (turns - low) / (high - low)))
        scaled.append(frequency * (kept + (1 - kept) / parameters["factor"]))
    return scaled, ONE


def yarn(base: Decimal, width: int, parameters: Parameters) -> Scaled:
    """YaRN (Peng et al. 2023): as llama3, but with a ramp over the pairs' numbers, and louder cosines and sines."""
    factor = parameters["factor"]

    def pair_with(turns: Decimal) -> Decimal:
        """The pair, as a real number, that makes so many turns within the original context."""
        return width * (parameters["original"] / (turns * TWO_PI)).ln() / (2 * base.ln())

    low, high = pair_with(parameters.get("beta_fast", Decimal(32))), pair_with(parameters.get("beta_slow", ONE))
    if parameters.get("truncate", ONE):
        low, high = low.to_integral_value(ROUND_FLOOR), high.to_integral_value(ROUND_CEILING)
    low, high = max(low, Decimal(0)), min(high, Decimal(width - 1))
    if low == high:
        high += Decimal("0.001")
    scaled = []
    for i, frequency in enumerate(exact_frequencies(base, width)):
        divided = min(ONE, max(Decimal(0), (i - low) / (high - low)))
        scaled.append(frequency * (1 - divided + divided / factor))
    return scaled, _yarn_magnitude(factor, parameters)


def _yarn_magnitude(factor: Decimal, parameters: Parameters) -> Decimal:
    """The attention factor: as given, else 0.1 · ln(factor) + 1, or a quotient of two such."""

    def louder(weight: Decimal) -> Decimal:
        return Decimal("0.1") * weight * factor.ln() + 1 if factor > 1 else ONE

    if "attention_factor" in parameters:
        return parameters["attention_factor"]
    weight, weight_all = parameters.get("mscale", Decimal(0)), parameters.get("mscale_all_dim", Decimal(0))
    return louder(weight) / louder(weight_all) if weight and weight_all else louder(ONE)


SCALINGS: Final[Mapping[str, Scaling]] = MappingProxyType(
    {
        "none": Scaling(none, frozenset()),
        "linear": Scaling(linear, frozenset({"factor"})),
        "dynamic": Scaling(dynamic, frozenset({"factor", "original", "length"})),
        "llama3": Scaling(llama3, frozenset({"factor", "low_freq_factor", "high_freq_factor", "original"})),
        "yarn": Scaling(
            yarn,
            frozenset({"factor", "original"}),
            frozenset({"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}),
        ),
    }
)
"""By the name of the type."""

MAY_BE_ZERO: Final = frozenset({"mscale", "mscale_all_dim", "truncate"})
"""Parameters of which 0 has a meaning: no such weight, or false. The others are positive."""
