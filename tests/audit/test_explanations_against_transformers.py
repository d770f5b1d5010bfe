"""Explanations beside transformers, each family: the logit lens and the attention that they show.

The lens of transformers is its own last norm and head, applied to its ``output_hidden_states``. Three ways lead there:
the definition in float64, within transformers' own error; the engine's end of the forward on transformers' hidden
states; and what is shown, of the engine's own rows, both within what activations in 8 bits cost.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cutaway.audit.explain.replay import Replay
from cutaway.audit.lens import end_of_forward, lens_of
from cutaway.engine.runner import ModelRunner
from cutaway.formats.gguf import open_gguf
from cutaway.model.records import Model
from cutaway.model.reference import load_reference
from cutaway.ops import reference
from support.rig import Part, log_softmax, run_reference
from support.tiny_families import CASES
from support.transformers_states import IDS, OTHER, ROUNDED, ROWS, SEEN, States, distance, states_of

Array = npt.NDArray[Any]
FIRST = len(IDS) - ROWS


def defined_end(exact: Model, rows: Array) -> Array:
    """The logits of residual rows [N, D], by definition."""
    normed = np.zeros_like(rows)
    reference.norm(None, rows, exact.output_norm[0], normed)
    logits = normed @ exact.head[0].matrix.T.astype(np.float64)
    reference.softcap(None, logits, float(exact.logits_cap))
    return logits


def defined_attention(queries: Array, keys: Array, window: int, scale: float, cap: float) -> Array:
    """The softmax of each row's scores, by definition: [T, H, C]. queries: [T, H, Dh] of the last positions; keys:
    [C, Hkv, Dh]; window, cap: 0 for none.
    """
    scores = scale * np.einsum("thd,chd->thc", queries, keys.repeat(queries.shape[1] // keys.shape[1], axis=1))
    if cap:
        scores = cap * np.tanh(scores / cap)
    distance = np.arange(len(keys) - len(queries), len(keys))[:, None] - np.arange(len(keys))
    hidden = (distance < 0) | (distance >= (window or len(keys)))
    scores = np.where(hidden[:, None], -np.inf, scores)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found: Array = powers / powers.sum(axis=-1, keepdims=True)
    return found


def seen(logits: Array) -> Array:
    """Log-probabilities of the ids that the fixture has."""
    return log_softmax(logits.astype(np.float64))[..., SEEN]


def spread(logprobs: Array) -> Array:
    """What a softmax tells apart: the numbers but for their mean."""
    result: Array = logprobs - logprobs.mean(axis=-1, keepdims=True)
    return result


@pytest.mark.parametrize("name", CASES)
def test_the_definition_is_transformers(name: str, tmp_path: Path) -> None:
    states = states_of(tmp_path, name)
    rows: dict[tuple[str, int], Array] = {}

    def look(team: Any, operation: str, layer: int, array: Array) -> None:
        rows[operation, layer] = np.array(array)

    with open_gguf(states.path) as gguf:
        config, exact = load_reference(gguf)
        run_reference(config, exact, [IDS], [[Part(0, 0, len(IDS))]], {"tap": look})
    residual = [rows["add_positions", -1], *(rows["ffn_residual", layer] for layer in range(config.num_layers))]
    H, Hkv = config.num_heads, config.num_kv_heads
    for stream, want in zip(residual, states.lens, strict=True):
        assert np.abs(seen(defined_end(exact, stream[FIRST:])) - want).max() <= states.error[2]
    for layer, want in enumerate(states.attentions):
        heads = rows["rope", layer].reshape(len(IDS), H + 2 * Hkv, -1)
        window, scale, cap = config.windows[layer], config.attention_scale, config.attention_cap
        found = defined_attention(heads[FIRST:, :H], heads[:, H : H + Hkv], window, scale, cap)
        assert np.abs(found - want).max() <= states.error[1], layer


@pytest.mark.parametrize("name", CASES)
def test_what_is_shown_is_transformers(name: str, tmp_path: Path) -> None:
    states = states_of(tmp_path, name)
    with open_gguf(states.path) as gguf, ModelRunner(gguf, threads=2, context=64) as runner:
        assert_the_end_is_transformers(runner, states)
        replay = Replay(runner, len(IDS))
        replay.compute(IDS[:FIRST])
        (rows,) = replay.open_rows(FIRST, IDS[FIRST:], kept=len(IDS))
        for number, token in enumerate(SEEN):
            for row, of_row in enumerate(lens_of(runner, str, rows.residual, [token] * ROWS, 1)):
                chosen = np.log([each.chosen for each in of_row])
                allowed = 4 * ROUNDED * np.sqrt((spread(states.lens[:, row]) ** 2).mean(axis=-1))
                assert (np.abs(chosen - states.lens[:, row, number]) <= allowed).all(), (token, row)
    shown = np.zeros(states.attentions.shape)
    for row, looked in enumerate(rows.looked):
        for layer, head, place in np.argwhere(looked.positions >= 0):
            shown[layer, row, head, looked.positions[layer, head, place]] = looked.probabilities[layer, head, place]
    for layer, want in enumerate(states.attentions):
        assert distance(shown[layer], want) <= ROUNDED, layer
        others = [*np.delete(states.attentions, layer, axis=0), np.roll(want, 1, axis=1), np.roll(want, 1, axis=2)]
        assert all(distance(shown[layer], other) >= OTHER for other in others), layer


def assert_the_end_is_transformers(runner: ModelRunner, states: States) -> None:
    """On its own hidden states, but the last, which is normed."""
    for hidden, want in zip(states.hidden[:-1], states.lens[:-1], strict=True):
        found, exact = spread(seen(end_of_forward(runner, hidden))), spread(want)
        assert distance(found, exact) <= ROUNDED
        assert distance(found, np.roll(exact, 1, axis=0)) >= OTHER
