"""The reference run against transformers in float32, and the closed run no further from it than llama.cpp is."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from cutaway.model.config import ModelConfig
from cutaway.model.loader import LoadedModel
from cutaway.model.records import Model
from support.rig import Part, log_softmax, run_reference, run_schedule

FIXTURES = Path(__file__).parents[1] / "fixtures"
MOST_DIFFERENCE = 2e-3
"""Of a logprob, in nats. transformers computes in float32, which alone makes some 1e-4."""

Logprobs = dict[str, npt.NDArray[np.float64]]  # by prompt: [T, V]


@pytest.fixture(scope="module")
def exact(smollm2_reference: tuple[ModelConfig, Model], prompts: dict[str, list[int]]) -> Logprobs:
    """The reference run's log-probabilities at every position of every prompt; all prompts in one ragged step."""
    config, record = smollm2_reference
    sequences = list(prompts.values())
    step = [Part(number, 0, len(ids)) for number, ids in enumerate(sequences)]
    logits = run_reference(config, record, sequences, [step])
    return {
        name: log_softmax(np.stack([logits[number, position] for position in range(len(ids))]))
        for number, (name, ids) in enumerate(prompts.items())
    }


def test_reference_is_what_transformers_computes(exact: Logprobs, prompts: dict[str, list[int]]) -> None:
    fixture = np.load(FIXTURES / "smollm2_reference.npz")
    assert len(prompts) >= 10
    differences = {}
    for name, ids in prompts.items():
        assert fixture[f"{name}.ids"].tolist() == ids
        candidates, theirs = fixture[f"{name}.candidates"], fixture[f"{name}.logprobs"]
        assert candidates.shape == (len(ids), 49)
        ours = np.take_along_axis(exact[name], candidates.astype(np.int64), axis=1)
        differences[name] = float(np.abs(ours - theirs).max())
    assert max(differences.values()) <= MOST_DIFFERENCE, differences


def test_reference_ranks_as_transformers_does(exact: Logprobs, prompts: dict[str, list[int]]) -> None:
    """The most likely token is the same wherever the runner-up is not as close as the two computations are."""
    fixture = np.load(FIXTURES / "smollm2_reference.npz")
    for name in prompts:
        candidates, theirs = fixture[f"{name}.candidates"], fixture[f"{name}.logprobs"]
        clear = theirs[:, 0] - theirs[:, 1] > 2 * MOST_DIFFERENCE
        assert (exact[name].argmax(axis=1) == candidates[:, 0])[clear].all()


def test_closed_run_is_as_near_as_llama_cpp(
    smollm2: LoadedModel, exact: Logprobs, prompts: dict[str, list[int]]
) -> None:
    """KL(reference ‖ closed), mean over all positions of all prompts, in nats."""
    theirs = json.loads((FIXTURES / "smollm2_llama_cpp_kl.json").read_text())
    assert set(theirs["mean_by_prompt"]) == set(prompts)
    divergences = []
    for name, ids in prompts.items():
        logits = run_schedule(smollm2, [ids], [[Part(0, 0, len(ids))]], threads=2)
        ours = log_softmax(np.stack([logits[0, position] for position in range(len(ids))]))
        divergences.append((np.exp(exact[name]) * (exact[name] - ours)).sum(axis=1))
    mean = float(np.concatenate(divergences).mean())
    assert mean <= theirs["mean_over_positions"], f"KL {mean:.3e}, llama.cpp's is {theirs['mean_over_positions']:.3e}"
    assert mean > 1e-5, "int8 activations can't be so near: the comparison is broken"
