"""The plan of a request's taps: which rows of which tensors, and how many bytes that is at most.

In: selections, a model, the lengths of prompt and answer. Out: the plan, before anything is computed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cutaway.audit.taps.selection import Mask, Selection, layers_of, positions_of, tensor_of
from cutaway.audit.taps.tensors import TapTensor


@dataclass(frozen=True)
class TapPlan:
    """``wanted``: positions [P] of each tensor and layer, -1 outside the layers; tensors of the same positions share
    their mask.
    """

    wanted: Mapping[tuple[TapTensor, int], Mask]
    dimensions: Mapping[str, int]
    num_prompt: int
    num_positions: int  # P, at most
    num_choices: int = 1  # answers, each with rows of its own behind the prompt's

    @property
    def answers(self) -> Sequence[int | None]:
        """Whose rows have rooms of their own: one answer's are with the prompt's, for which None stands."""
        return [None] if self.num_choices == 1 else [None, *range(self.num_choices)]

    def room(self, tensor: TapTensor, layer: int, answer: int | None) -> tuple[int, tuple[int, ...]]:
        """How many rows of one tensor there are at most, and the shape of one, with columns for the last one's
        positions. answer: one of ``answers``.
        """
        places = np.flatnonzero(self.wanted[tensor, layer])
        if self.num_choices > 1:
            first = int(np.searchsorted(places, self.num_prompt))
            places = places[:first] if answer is None else places[first:]
        columns = int(places[-1]) + 1 if len(places) else 0
        return len(places), tensor.row({**self.dimensions, "C": columns})

    def key_bytes(self, tensor: TapTensor, layer: int) -> int:
        """Bytes of one tensor, all of its rows, at most."""
        rooms = [self.room(tensor, layer, answer) for answer in self.answers]
        return sum(rows * math.prod(shape) for rows, shape in rooms) * np.dtype(tensor.dtype).itemsize

    @property
    def num_bytes(self) -> int:
        """Bytes of all, at most: an answer that ends early has less."""
        return sum(self.key_bytes(*each) for each in self.wanted)

    @property
    def needs_all_logits(self) -> bool:
        """Whether a tensor is wanted at a position of the prompt that has it only if its logits are computed."""
        before = self.num_prompt - 1
        return any(tensor.of_outputs and mask[:before].any() for (tensor, _), mask in self.wanted.items())

    def describe(self) -> str:
        """In words."""
        rows = sum(self.room(*each, answer)[0] for each in self.wanted for answer in self.answers)
        tensors = "1 tensor" if len(self.wanted) == 1 else f"{len(self.wanted):,} tensors"
        answers = "" if self.num_choices == 1 else f" of each of {self.num_choices} answers"
        return f"{tensors} with {rows:,} rows together, of {self.num_positions:,} positions{answers} at most"


def plan_taps(
    selections: Sequence[Selection],
    tensors: Mapping[str, TapTensor],
    dimensions: Mapping[str, int],
    num_prompt: int,
    max_new_tokens: int,
    num_choices: int,
) -> TapPlan:
    """dimensions: the model's, by the shape table's names. Raises InvalidRequestError for what there isn't."""
    num_positions = num_prompt + max_new_tokens - 1
    wanted: dict[tuple[TapTensor, int], Mask] = {}
    masks: dict[bytes, Mask] = {}  # each once
    for selection in selections:
        tensor = tensor_of(selection, tensors)
        mask = positions_of(selection, tensor.of_outputs, num_prompt, num_positions)
        for layer in layers_of(selection, dimensions["L"]) if tensor.in_layers else [-1]:
            before = wanted.get((tensor, layer))
            whole = mask if before is None else before | mask
            wanted[tensor, layer] = masks.setdefault(whole.tobytes(), whole)
    return TapPlan(wanted, dimensions, num_prompt, num_positions, num_choices)
