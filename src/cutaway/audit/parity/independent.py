"""How far the residual stream would be from float64's if roundings to int8 were all that went wrong, and only added up.

In: for each operation, its relative error on its own inputs. Out: the expected distance of the stream after it.

What a block adds to the stream has the noise of the roundings on its way, each as large as it was; it is carried on by
the stream as it is. What the layers above make of it is left out: the measured distance over this one tells by how much
the network amplifies what it is disturbed by, or damps it.
"""

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


class IndependentSum:
    """The squares of the noise, row by row [T], of the step that is under way."""

    def __init__(self) -> None:
        self._stream = np.zeros(0)  # squared length of the noise in each row
        self._block = np.zeros(0)  # squared relative noise of what the block will add
        self._added = np.zeros(0)  # squared length of that

    def after(self, name: str, relative: Doubles, exact: Doubles) -> Doubles | None:
        """The stream's expected relative distance [T] after this tap, if it is one of the stream or of the logits.

        relative: the operation's error on its own inputs, of each row; exact: its result [T, …].
        """
        squares = (exact * exact).sum(axis=1)
        if name == "embed":
            self._stream = relative**2 * squares
        elif name in ("attention_input", "ffn_input"):
            # Gate and up are multiplied with each other, and the one input disturbs both.
            self._block = relative**2 * (2 if name == "ffn_input" else 1)
        elif name in ("kv_write", "attention_output_input", "down_input"):
            self._block = self._block + relative**2
        elif name in ("attention_output", "attention_post_norm", "down", "ffn_post_norm"):
            self._added = squares
        elif name in ("attention_residual", "ffn_residual"):
            self._stream = self._stream + self._block * self._added
        elif name == "take_rows":
            self._stream = self._stream[-len(relative) :] / squares  # relative from here on: a norm follows
            return np.sqrt(self._stream)
        elif name == "head_input":
            self._block = relative**2
        elif name in ("logits", "logits_softcap"):
            return np.sqrt(self._stream + self._block)
        if name in ("embed", "attention_residual", "ffn_residual"):
            distance: Doubles = np.sqrt(self._stream / np.where(squares > 0, squares, 1))
            return distance
        return None
