"""Rotary positions (Su et al. 2021): what describes a table of angles, and the tables that the forward reads.

In: for each table a base, a scaling with its parameters, divisors that the file may bring. Out: ``Positions`` without
rows. In which layout the pairs lie, and which layer turns by which table, is the model's.
"""

import decimal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np

from cutaway.errors import ModelFileError
from cutaway.model.positions.frequencies import ARITHMETIC, nearest
from cutaway.model.positions.scalings import MAY_BE_ZERO, SCALINGS
from cutaway.model.positions.tables import Positions, no_rotation, no_rows


@dataclass(frozen=True)
class Rope:
    """One table of angles. Raises ModelFileError for a scaling that is not known, or not by these parameters."""

    base: float
    width: int  # R, the numbers of a head that are turned, an even number
    scaling: str = "none"
    parameters: Mapping[str, float] = field(default_factory=dict)
    divisors: tuple[float, ...] = ()  # of the frequencies, [R/2], where the file has them (``rope_freqs.weight``)

    def __post_init__(self) -> None:
        scaling = SCALINGS.get(self.scaling)
        if scaling is None:
            raise ModelFileError(
                f"the scaling of rotary positions is {self.scaling!r}; Cutaway knows {', '.join(SCALINGS)}. "
                "Use a model with one of these."
            )
        given = set(self.parameters)
        for title, names in (
            ("lacks", scaling.needs - given),
            ("does not have", given - scaling.needs - scaling.takes),
        ):
            if names:
                raise ModelFileError(
                    f"the scaling {self.scaling!r} of rotary positions {title} the parameters "
                    f"{', '.join(sorted(names))}. Convert the model again, or use another file of it."
                )
        positive = [value for name, value in self.parameters.items() if name not in MAY_BE_ZERO]
        others = [value for name, value in self.parameters.items() if name in MAY_BE_ZERO]
        numbers = (self.base, *self.divisors, *positive)
        if any(not 0 < value < 1e12 for value in numbers) or any(not 0 <= value < 1e12 for value in others):
            raise ModelFileError(
                f"base, divisors and parameters of rotary positions must be positive; the base is {self.base}, the "
                f"parameters {dict(self.parameters)}. The file is damaged."
            )
        if not all(abs(value) < 1e12 for value in self.parameters.values()):  # NaN isn't, either
            raise ModelFileError(
                f"the parameters of the scaling {self.scaling!r} of rotary positions are {dict(self.parameters)}; they "
                "must be finite numbers. The file is damaged."
            )


def rotary(ropes: Sequence[Rope], model_width: int) -> Positions:
    """The tables of all ropes, which have the same R; ``model_width``: D."""
    tables, magnitudes = [], []
    with decimal.localcontext(ARITHMETIC):
        for rope in ropes:
            parameters = {name: Decimal(value) for name, value in rope.parameters.items()}
            try:
                scaled, magnitude = SCALINGS[rope.scaling].function(Decimal(rope.base), rope.width, parameters)
            except decimal.DecimalException as error:
                raise ModelFileError(
                    f"rotary positions of base {rope.base} can't be scaled by {rope.scaling!r} with "
                    f"{dict(rope.parameters)}. The file is damaged."
                ) from error
            divisors = rope.divisors or (1.0,) * len(scaled)
            tables.append(nearest([value / Decimal(each) for value, each in zip(scaled, divisors, strict=True)]))
            magnitudes.append(float(magnitude))
    if not tables:
        return Positions(no_rows(model_width), *no_rotation())
    return Positions(no_rows(model_width), np.stack(tables), np.array(magnitudes, np.float64))
