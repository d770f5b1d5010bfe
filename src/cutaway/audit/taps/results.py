"""What was tapped: blocks of rows as they came, and the same tensor by tensor.

In: blocks, one for each step, tensor and layer. Out: a mapping from names to rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cutaway.audit.taps.tensors import ALIASES, DERIVED, TapTensor
from cutaway.engine.outputs import TappedRows


class Block(NamedTuple):
    """The rows of one tensor that one step brought."""

    tensor: TapTensor
    layer: int  # -1 outside the layers
    step: int  # 0 for a part of the prompt, k for the k-th generated token
    positions: npt.NDArray[np.int32]  # [k]
    values: npt.NDArray[Any]  # [k, …]
    choice: int | None = None  # of several answers, the one whose tokens these are; None for the prompt's

    @property
    def key(self) -> str:
        """The tensor's name, with its layer, and with the answer where there are several."""
        name = self.tensor.key(self.layer)
        return name if self.choice is None else f"choices.{self.choice}.{name}"


class Taps(Mapping[str, TappedRows]):
    """By names as ``layers.3.attention``; ``layers.3.resid`` is ``layers.3.ffn_residual``. Of several answers to one
    prompt that is the prompt's part, and ``choices.1.layers.3.attention`` is that of the second one's tokens.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = tuple(blocks)
        self._keys: dict[str, list[Block]] = {}
        for block in self.blocks:
            self._keys.setdefault(block.key, []).append(block)

    def __getitem__(self, name: str) -> TappedRows:
        prefix, dot, last = name.rpartition(".")
        found = self._keys.get(name) or self._keys[f"{prefix}{dot}{ALIASES.get(last, last)}"]
        return TappedRows(np.concatenate([block.positions for block in found]), stacked(found))

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def stacked(blocks: Sequence[Block]) -> npt.NDArray[Any]:
    """The rows of one tensor, all blocks. Rows of attention have as many columns as the longest: what a position can't
    attend has the score -∞ and the weight 0.
    """
    tensor = blocks[0].tensor
    if tensor.name not in DERIVED:
        return np.concatenate([block.values for block in blocks])
    rows = sum(len(block.positions) for block in blocks)
    heads, columns = blocks[0].values.shape[1], max(block.values.shape[2] for block in blocks)
    nothing = -np.inf if tensor.name == "attn.scores" else 0.0
    whole = np.full((rows, heads, columns), nothing, tensor.dtype)
    first = 0
    for block in blocks:
        end = first + len(block.positions)
        whole[first:end, :, : block.values.shape[2]] = block.values
        first = end
    return whole
