"""The residual streams of a parity run, the engine's and float64's, for comparing with a third one.

In: what the taps show. Out: ``Streams``: for each place both, over all tokens.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Place = tuple[str, int]  # tap, layer


class Streams:
    """The stream where transformers shows it: embedded, after each layer but the last, after the last norm; and the
    logits.
    """

    def __init__(self, num_layers: int) -> None:
        self.places: list[Place] = [
            ("add_positions", -1),
            *(("ffn_residual", layer) for layer in range(num_layers - 1)),
            ("output_norm", -1),
            ("logits_softcap", -1),
        ]
        self._found: dict[Place, tuple[list[Doubles], list[npt.NDArray[np.float32]]]] = {
            place: ([], []) for place in self.places
        }

    def add(self, place: Place, definition: Doubles, engine: npt.NDArray[Any]) -> None:
        """A chunk's rows [T, …]; nothing for places that aren't compared."""
        if place in self._found:
            exact, got = self._found[place]
            exact.append(np.array(definition))
            got.append(np.array(engine, np.float32))

    @property
    def definition(self) -> list[Doubles]:
        """In the order of ``places``."""
        return [np.concatenate(self._found[place][0]) for place in self.places]

    @property
    def engine(self) -> list[npt.NDArray[np.float32]]:
        """In the order of ``places``."""
        return [np.concatenate(self._found[place][1]) for place in self.places]


def relative_rows(got: Doubles, exact: Doubles) -> Doubles:
    """‖got - exact‖ / ‖exact‖ of each row [T]; 0 where both are the same."""
    error = np.sqrt(((got - exact) ** 2).sum(axis=1))
    size = np.sqrt((exact * exact).sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        relative: Doubles = np.where(error == 0, 0.0, error / size)
    return relative
