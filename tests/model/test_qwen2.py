"""The family qwen2 on real files: the reference run against transformers in float32, the closed run against it, and
the shadow check. Skipped where a file isn't in the cache.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cutaway.formats.blocks import dequantize
from cutaway.formats.gguf import GGUFFile, open_gguf
from cutaway.model.config import ModelConfig
from cutaway.model.loader import LoadedModel, load_model
from cutaway.model.records import Model
from cutaway.model.reference import load_reference
from cutaway.ops.cpu import embed
from support.bits import differing
from support.logprobs import (
    MOST_DIFFERENCE,
    Logprobs,
    closed_logprobs,
    differences_from_oracle,
    mean_divergence,
    misranked,
    reference_logprobs,
)
from support.long import LONG
from support.model_files import require_model
from support.shadow import BOUNDS, exceeding, shadow_run
from support.teams import run

FIXTURES = Path(__file__).parents[1] / "fixtures"
MOST_DIVERGENCE = 2e-2
"""KL(reference ‖ closed) in nats, which int8 activations cost; a wrong bias, pair or scale costs more than 1."""

SMALL, LARGE = "qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct"
ORACLES = {SMALL: "qwen2_reference.npz", LARGE: "qwen2_1.5b_reference.npz"}
MODELS = [SMALL, pytest.param(LARGE, marks=pytest.mark.skipif(not LONG, reason="takes minutes: CUTAWAY_LONG_TESTS=1"))]

SHORT = frozenset({"weather", "chinese", "english", "one_token", "chat"})

GREATEST_SCORE = 1300.0
"""Of attention, in this model's first layer, whose keys have large biases. A score is rounded to float32, and its
weight changes by as much, relatively.
"""


@pytest.fixture(scope="module", params=[SMALL])
def qwen2_gguf(request: pytest.FixtureRequest) -> Iterator[GGUFFile]:
    """The small model, unless a test names others. In float32, as the reference has them, they take 2 and 6 GB."""
    with open_gguf(require_model(request.param)) as gguf:
        yield gguf


@pytest.fixture(scope="module")
def qwen2(qwen2_gguf: GGUFFile) -> LoadedModel:
    return load_model(qwen2_gguf, threads=2)


@pytest.fixture(scope="module")
def qwen2_reference(qwen2_gguf: GGUFFile) -> tuple[ModelConfig, Model]:
    return load_reference(qwen2_gguf)


@pytest.fixture(scope="module")
def qwen2_prompts() -> dict[str, list[int]]:
    """All ten in a long run; else five."""
    listed = json.loads((FIXTURES / "qwen2_prompts.json").read_text())["prompts"]
    assert len(listed) == 10
    return {prompt["name"]: prompt["ids"] for prompt in listed if LONG or prompt["name"] in SHORT}


@pytest.fixture(scope="module")
def exact(qwen2_reference: tuple[ModelConfig, Model], qwen2_prompts: dict[str, list[int]]) -> Logprobs:
    return reference_logprobs(*qwen2_reference, qwen2_prompts)


@pytest.mark.parametrize("qwen2_gguf", MODELS, indirect=True, scope="module")
def test_reference_is_what_transformers_computes(
    qwen2_gguf: GGUFFile, exact: Logprobs, qwen2_prompts: dict[str, list[int]]
) -> None:
    """At every position of all prompts."""
    oracle = np.load(FIXTURES / ORACLES[qwen2_gguf.path.stem])
    differences = differences_from_oracle(exact, oracle, qwen2_prompts)
    print(differences)
    assert set(differences) == set(qwen2_prompts) >= SHORT
    assert max(differences.values()) <= MOST_DIFFERENCE, differences
    assert misranked(exact, oracle, qwen2_prompts) == dict.fromkeys(qwen2_prompts, 0)


@pytest.mark.parametrize("qwen2_gguf", MODELS, indirect=True, scope="module")
def test_closed_run_is_near_the_reference(
    qwen2: LoadedModel, exact: Logprobs, qwen2_prompts: dict[str, list[int]]
) -> None:
    mean = mean_divergence(exact, closed_logprobs(qwen2, qwen2_prompts))
    print(f"KL(reference ‖ closed) {mean:.3e} nats")
    assert 1e-5 < mean < MOST_DIVERGENCE


def test_every_operation_of_a_real_run(qwen2: LoadedModel, qwen2_reference: tuple[ModelConfig, Model]) -> None:
    assert set(qwen2.formats) == {"Q4_K", "Q5_0", "Q6_K", "Q8_0"}
    bounds = {**BOUNDS, "attention": BOUNDS["attention"] + GREATEST_SCORE * 2.0**-24}
    assert exceeding(shadow_run(qwen2, qwen2_reference[1], "f32"), bounds) == {}


def test_the_embedding_reads_the_files_values(qwen2: LoadedModel, qwen2_gguf: GGUFFile) -> None:
    """Also rows of the last, unused ids."""
    tokens = np.array([0, 1, 9707, 104307, 151645, 151935], np.int32)
    x = np.zeros((len(tokens), qwen2.config.width), np.float32)
    run(embed, qwen2.record.embedding, tokens, np.float32(1), x)
    tensor = qwen2_gguf.tensors["token_embd.weight"]
    assert differing(x, dequantize(tensor.block_type, tensor.data[tokens])) == 0
