"""What was tapped of a request, tensor by tensor: room for all rows that are wanted, filled step by step.

In: rows as a step brings them, and whether it counted. Out: a mapping from names to rows. The room is what was
announced, and no row has a store of its own: where rows are small that would be many times as much.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.audit.taps.plan import TapPlan
from cutaway.audit.taps.tensors import ALIASES, DERIVED, TapTensor
from cutaway.engine.outputs import TappedRows


class TappedTensor(NamedTuple):
    """The rows of one tensor."""

    tensor: TapTensor
    layer: int  # -1 outside the layers
    rows: TappedRows
    steps: npt.NDArray[np.int64]  # [n], of each row: 0 for a part of the prompt, k for the k-th generated token
    choice: int | None = None  # of several answers, the one whose tokens these are; None for the prompt's

    @property
    def key(self) -> str:
        """The tensor's name, with its layer, and with the answer where there are several."""
        name = self.tensor.key(self.layer)
        return name if self.choice is None else f"choices.{self.choice}.{name}"


class TapRoom:
    """The room of one tensor, for one answer's rows or the prompt's. One thread fills it; any may ask for what counts,
    which doesn't change any more.
    """

    def __init__(self, plan: TapPlan, tensor: TapTensor, layer: int, answer: int | None) -> None:
        """answer: one of the plan's ``answers``."""
        self._tensor, self._layer, self._num_prompt, self._answer = tensor, layer, plan.num_prompt, answer
        rows, shape = plan.room(tensor, layer, answer)
        self._positions = np.empty(rows, np.int32)
        self._values = np.empty((rows, *shape), tensor.dtype)
        self._count = 0  # rows that count
        self._end = 0  # rows with those of the step that is being run

    def add(self, positions: npt.NDArray[np.int32], values: npt.NDArray[Any]) -> None:
        """Rows of a step. Those of attention have a column for each position up to the step's last; what a position
        can't attend has the score -∞ and the weight 0.
        """
        here = slice(self._end, self._end + len(positions))
        self._positions[here] = positions
        if self._tensor.name in DERIVED:
            columns = values.shape[2]
            self._values[here, :, columns:] = -np.inf if self._tensor.name == "attn.scores" else 0.0
            self._values[here, :, :columns] = values
        else:
            self._values[here] = values
        self._end = here.stop

    def keep(self) -> None:
        """The step counts."""
        self._count = self._end

    def drop(self) -> None:
        """It did not."""
        self._end = self._count

    def tapped(self) -> TappedTensor | None:
        """What counts so far, not copied; None where there is nothing yet."""
        count = self._count
        if not count:
            return None
        positions, values = self._positions[:count], self._values[:count]
        if self._tensor.name in DERIVED:
            values = values[:, :, : int(positions[-1]) + 1]
        steps = np.maximum(positions.astype(np.int64) - self._num_prompt + 1, 0)
        return TappedTensor(self._tensor, self._layer, TappedRows(positions, values), steps, self._answer)


class Taps(Mapping[str, TappedRows]):
    """By names as ``layers.3.attention``; ``layers.3.resid`` is ``layers.3.ffn_residual``. Of several answers to one
    prompt that is the prompt's part, and ``choices.1.layers.3.attention`` is that of the second one's tokens.
    """

    def __init__(self, tensors: Sequence[TappedTensor]) -> None:
        self.tensors = tuple(tensors)
        self._rows = {each.key: each.rows for each in self.tensors}

    def __getitem__(self, name: str) -> TappedRows:
        prefix, dot, last = name.rpartition(".")
        return self._rows.get(name) or self._rows[f"{prefix}{dot}{ALIASES.get(last, last)}"]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
