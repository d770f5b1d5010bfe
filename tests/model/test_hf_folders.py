"""Folders as transformers saves them, of every family, against transformers: names, configs, log-probabilities.

The fixture has each config.json and the tensors' names and shapes; the weights are made here and there alike.
"""

from pathlib import Path

import numpy as np
import pytest

from cutaway.formats.hf_families import HF_FAMILIES
from cutaway.formats.hf_folder import open_hf_folder
from cutaway.model.config import FAMILIES
from cutaway.model.loader import load_model
from cutaway.model.reference import load_reference
from support.hf_weights import PROMPTS
from support.rig import Part, log_softmax, run_reference, run_schedule
from support.saved_folders import SAVED, saved_folder

FIXTURES = Path(__file__).parents[1] / "fixtures"
STEP = [Part(number, 0, len(ids)) for number, ids in enumerate(PROMPTS)]
RUN = [case for case, saved in SAVED.items() if HF_FAMILIES[saved["config"]["model_type"]].architecture in FAMILIES]


def folder_of(tmp_path: Path, case: str, type_name: str, shards: int) -> Path:
    return saved_folder(tmp_path / "model", case, type_name, shards)


def test_every_family_is_saved() -> None:
    assert {saved["config"]["model_type"] for saved in SAVED.values()} == set(HF_FAMILIES)


@pytest.mark.parametrize("case", SAVED)
def test_no_tensor_is_left_without_a_name(tmp_path: Path, case: str) -> None:
    with open_hf_folder(folder_of(tmp_path, case, "BF16", 1)) as source:
        own = ("blk.", "token_embd.", "position_embd.", "output_norm.", "output.")
        assert [name for name in source.tensors if not name.startswith(own)] == []
        assert len(source.tensors) == len(SAVED[case]["shapes"])


@pytest.mark.parametrize(("type_name", "shards"), [("F32", 1), ("BF16", 3)])
@pytest.mark.parametrize("case", RUN)
def test_logprobs_are_those_of_transformers(tmp_path: Path, case: str, type_name: str, shards: int) -> None:
    """At every position of ten prompts: the reference to 2e-3, the kernels by their divergence."""
    with open_hf_folder(folder_of(tmp_path, case, type_name, shards)) as source:
        loaded, exact = load_model(source, threads=2), run_reference(*load_reference(source), PROMPTS, [STEP])
    ours = run_schedule(loaded, PROMPTS, [STEP])
    places = [(number, position) for number, ids in enumerate(PROMPTS) for position in range(len(ids))]
    expected = np.load(FIXTURES / "hf_folders.npz")[case].astype(np.float64)
    reference, kernels = (log_softmax(np.stack([logits[place] for place in places])) for logits in (exact, ours))
    assert np.abs(reference - expected).max() < 2e-3
    divergence = (np.exp(reference) * (reference - kernels)).sum(axis=1)
    uniform = (np.exp(reference) * (reference + np.log(reference.shape[1]))).sum(axis=1)
    assert divergence.mean() < 2e-2 * uniform.mean()
    assert uniform.mean() > 1e-3, "the model says nothing"
