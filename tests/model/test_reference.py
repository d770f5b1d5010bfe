"""The reference run against transformers in float32, and the closed run no further from it than llama.cpp is."""

import json
from pathlib import Path

import numpy as np
import pytest

from cutaway.model.config import ModelConfig
from cutaway.model.loader import LoadedModel
from cutaway.model.records import Model
from support.logprobs import (
    MOST_DIFFERENCE,
    Logprobs,
    closed_logprobs,
    differences_from_oracle,
    mean_divergence,
    misranked,
    reference_logprobs,
)

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(scope="module")
def exact(smollm2_reference: tuple[ModelConfig, Model], prompts: dict[str, list[int]]) -> Logprobs:
    return reference_logprobs(*smollm2_reference, prompts)


def test_reference_is_what_transformers_computes(exact: Logprobs, prompts: dict[str, list[int]]) -> None:
    oracle = np.load(FIXTURES / "smollm2_reference.npz")
    assert len(prompts) >= 10
    differences = differences_from_oracle(exact, oracle, prompts)
    assert max(differences.values()) <= MOST_DIFFERENCE, differences


def test_reference_ranks_as_transformers_does(exact: Logprobs, prompts: dict[str, list[int]]) -> None:
    oracle = np.load(FIXTURES / "smollm2_reference.npz")
    assert misranked(exact, oracle, prompts) == dict.fromkeys(prompts, 0)


def test_closed_run_is_as_near_as_llama_cpp(
    smollm2: LoadedModel, exact: Logprobs, prompts: dict[str, list[int]]
) -> None:
    theirs = json.loads((FIXTURES / "smollm2_llama_cpp_kl.json").read_text())
    assert set(theirs["mean_by_prompt"]) == set(prompts)
    mean = mean_divergence(exact, closed_logprobs(smollm2, prompts))
    assert mean <= theirs["mean_over_positions"], f"KL {mean:.3e}, llama.cpp's is {theirs['mean_over_positions']:.3e}"
    assert mean > 1e-5, "int8 activations can't be so near: the comparison is broken"
