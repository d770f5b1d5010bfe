"""Tapped residual streams and attention weights against transformers' ``output_hidden_states`` and
``output_attentions``, each family, within what activations in 8 bits cost.

The reference run in float64 stands between: it is transformers' values but for their float32, so that a tap that showed
another tensor, layer, head or position would be seen at once; and what is tapped is as far from it as it is from
transformers'.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cutaway import SamplingParams, TapRequest
from cutaway.formats.gguf import open_gguf
from cutaway.model.reference import load_reference
from support.rig import Part, run_reference
from support.tapped import tapped_engine
from support.tiny_families import CASES
from support.transformers_states import IDS, OTHER, ROUNDED, ROWS, distance, states_of


@pytest.mark.parametrize("name", CASES)
def test_they_are_transformers(name: str, tmp_path: Path) -> None:
    path, hidden, attentions, _, error = states_of(tmp_path, name)
    with tapped_engine(path) as engine:
        places = f"@{len(IDS) - ROWS}-{len(IDS) - 1}"
        names = ("add_positions", "resid", "output_norm", "attn.weights")
        asking = engine.ask(IDS, SamplingParams(max_tokens=1), TapRequest(*(each + places for each in names)))
        engine.run()
        taps = asking.output().taps
        num_layers = engine.runner.config.num_layers
    assert taps is not None
    reference: dict[tuple[str, int], npt.NDArray[np.float64]] = {}

    def look(team: Any, operation: str, layer: int, array: npt.NDArray[Any]) -> None:
        reference[operation, layer] = np.array(array)[-ROWS:]

    with open_gguf(path) as gguf:
        run_reference(*load_reference(gguf), [IDS], [[Part(0, 0, len(IDS))]], {"tap": look})

    stream = [("add_positions", -1), *(("ffn_residual", layer) for layer in range(num_layers - 1)), ("output_norm", -1)]
    keys = ["add_positions", *(f"layers.{layer}.resid" for layer in range(num_layers - 1)), "output_norm"]
    for number, (place, key) in enumerate(zip(stream, keys, strict=True)):
        want = hidden[number]
        assert np.abs(reference[place] - want).max() <= error[0] * np.abs(want).max(), place
        found = taps[key].values
        assert distance(found, want) <= ROUNDED, key
        others = [*np.delete(hidden, number, axis=0), np.roll(want, 1, axis=0)]
        assert all(distance(found, other) >= OTHER for other in others), key
    for layer, want in enumerate(attentions):
        found = taps[f"layers.{layer}.attn.weights"].values
        assert found.shape == want.shape
        assert distance(found, want) <= ROUNDED, layer
        others = [*np.delete(attentions, layer, axis=0), np.roll(want, 1, axis=1), np.roll(want, 1, axis=2)]
        assert all(distance(found, other) >= OTHER for other in others), layer
