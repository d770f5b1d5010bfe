"""The costs of any step of a model, quickly: what ``costs`` says, as a linear function of a step's work.

In: a config, the bytes of its matrices. Out: for each operation, and each of many steps, operations and bytes. Every
field of every cost is a sum of products with the tokens, the rows of logits, the pairs that attend and the positions in
the cache; so the factors are found once, by asking ``costs`` about steps that have one of these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cutaway.audit.costs import StepWork, step_costs
from cutaway.model.config import ModelConfig

FIELDS: Final = ("int8_operations", "flops", "weight_bytes", "kv_bytes", "activation_bytes")
NOTHING: Final = StepWork(0, 0, 0, 0)

Doubles = npt.NDArray[np.float64]
Works = Mapping[int, StepWork]  # by window


class CostModel:
    """The factors of one model."""

    def __init__(self, config: ModelConfig, weight_bytes: Mapping[str, int], position_bytes: int) -> None:
        """weight_bytes, position_bytes: as for ``step_costs``."""
        self.windows = sorted(set(config.windows))
        nothing: dict[int, StepWork] = dict.fromkeys(self.windows, NOTHING)

        def costs(works: Works) -> dict[str, Doubles]:
            found: dict[str, Doubles] = {}
            for (name, _), cost in step_costs(config, weight_bytes, works, position_bytes).items():
                fields = np.array([getattr(cost, field) for field in FIELDS], np.float64)
                found[name] = found.get(name, np.zeros(len(FIELDS))) + fields
            return found

        base = costs(nothing)
        self.names = list(base)
        """Of the operations that the model has, in the forward's order."""
        counts = [name for name, _ in step_costs(config, weight_bytes, nothing, position_bytes)]
        self.calls = {name: counts.count(name) for name in self.names}
        units: list[Works] = [
            {window: replace(NOTHING, tokens=1) for window in self.windows},
            {window: replace(NOTHING, outputs=1) for window in self.windows},
        ]
        for field in ("attended", "cached"):
            changes: Any = {field: 1}
            units += [{**nothing, window: replace(NOTHING, **changes)} for window in self.windows]
        rows = [base, *costs_of_units(units, costs, base)]
        self._factors = np.array([[row[name] for name in self.names] for row in rows])  # [1 + units, N, fields]

    def __call__(self, works: Sequence[Works]) -> Doubles:
        """[steps, N, fields], in the order of ``names`` and ``FIELDS``."""
        vectors = np.array([self._vector(each) for each in works], np.float64).reshape(len(works), len(self._factors))
        found: Doubles = np.einsum("su,unf->snf", vectors, self._factors)
        return found

    def _vector(self, works: Works) -> list[int]:
        first = works[self.windows[0]]
        attended = [works[window].attended for window in self.windows]
        return [1, first.tokens, first.outputs, *attended, *(works[window].cached for window in self.windows)]


def costs_of_units(units: Sequence[Works], costs: Any, base: Mapping[str, Doubles]) -> list[dict[str, Doubles]]:
    """What each unit adds to a step of nothing."""
    return [{name: fields - base[name] for name, fields in costs(works).items()} for works in units]
