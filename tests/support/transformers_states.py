"""What transformers has inside the small random models: hidden states, attentions, the logit lens; each family.

In: a case of ``tiny_families``. Out: arrays of ``fixtures/taps_reference.npz``, which ``oracles/make_taps_fixture.py``
makes; how far transformers' own float32 is from its float64; how far apart things may be.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from support.tiny_families import PROMPTS, write_case

FIXTURE = np.load(Path(__file__).parents[1] / "fixtures" / "taps_reference.npz")
META = json.loads(str(FIXTURE["meta"]))
IDS, ROWS, SEEN = PROMPTS[META["prompt"]], META["rows"], META["seen"]
ROUNDED = 0.06
"""Root mean square of the engine's error relative to that of the values: int8 activations make 2 to 4 %."""
OTHER = 0.3
"""… to those of another layer or position at least: so another tensor is no rounding."""


class States(NamedTuple):
    """Of the last ROWS positions of IDS."""

    path: Path  # of the model
    hidden: npt.NDArray[Any]  # [L + 1, ROWS, D]
    attentions: npt.NDArray[Any]  # [L, ROWS, H, T]
    lens: npt.NDArray[Any]  # [L + 1, ROWS, S] log-probabilities of SEEN
    error: tuple[float, float, float]  # what float64 may be apart from these three: twice what float32 is from it


def states_of(folder: Path, name: str) -> States:
    """The case's, and its file, which must be the one that transformers read."""
    path = write_case(folder / "tiny.gguf", name)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == str(FIXTURE[f"{name}.sha256"]), "another file"
    hidden, attentions, lens, error = (FIXTURE[f"{name}.{key}"] for key in ("hidden", "attentions", "lens", "error"))
    return States(path, hidden, attentions, lens, (2 * error[0], 2 * error[1], 2 * error[2]))


def distance(found: npt.NDArray[Any], exact: npt.NDArray[Any]) -> float:
    """Root mean square of the difference, relative to that of the values."""
    return float(np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()))
