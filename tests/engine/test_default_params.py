"""What a model's authors advise: from a GGUF, from a folder, from the catalogue; and where it is used."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway import LLM, SamplingParams
from cutaway.engine.default_params import default_params
from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.formats.hf_sampling import read_hf_sampling
from cutaway.formats.source import ModelSource
from cutaway.hub.catalogue import CATALOGUE, HUB_ALIASES

ADVISED = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.05}
IN_GGUF = {
    "general.sampling.temp": float(np.float32(0.6)),  # as a file has them
    "general.sampling.top_k": 20,
    "general.sampling.top_p": float(np.float32(0.95)),
    "general.sampling.min_p": float(np.float32(0.05)),
    "general.sampling.penalty_repeat": float(np.float32(1.05)),
}


def source(metadata: Mapping[str, Any]) -> ModelSource:
    return ModelSource(Path("model.gguf"), "GGUF", metadata, {})


def folder_with(folder: Path, **generation_config: Any) -> Path:
    (folder / "generation_config.json").write_text(json.dumps(generation_config))
    return folder


def test_a_gguf_and_its_folder_advise_the_same(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, **ADVISED, do_sample=True, eos_token_id=[1, 2], bos_token_id=None)
    assert default_params(source(IN_GGUF), None, "auto") == ADVISED
    assert default_params(source(read_hf_sampling(folder)), None, "auto") == ADVISED


def test_what_is_not_said_is_not_advised(tmp_path: Path) -> None:
    assert read_hf_sampling(tmp_path) == {}
    folder_with(tmp_path, temperature=1, top_p=None, eos_token_id=2)
    assert default_params(source(read_hf_sampling(tmp_path)), None, "auto") == {"temperature": 1.0}
    assert default_params(source({}), None, "auto") == {}


@pytest.mark.parametrize("entry", [*CATALOGUE.values(), *HUB_ALIASES.values()], ids=lambda entry: entry.alias)
def test_the_catalogue_advises_where_the_file_does_not(entry: Any) -> None:
    assert default_params(source({}), entry, "auto") == dict(entry.sampling) != {}
    SamplingParams(**dict(entry.sampling))
    assert default_params(source({"general.sampling.top_k": 5}), entry, "auto") == {"top_k": 5}
    assert default_params(source(IN_GGUF), entry, "vllm") == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"temperature": "hot"}, "temperature is 'hot'; it must be a number"),
        ({"temperature": True}, "temperature is 'True'; it must be a number"),
        ({"top_k": 2.5}, "top_k is '2.5'; it must be an integer"),
        ({"top_k": 2**31}, "top_k is '2147483648'; it must be an integer of 32 bits"),
        ({"temperature": 10**400}, "temperature is '1000"),
        ({"temperature": 1e300}, "temperature is .*Or load it with"),
        ({"temperature": float("nan")}, "temperature is nan.*Or load it with"),
        ({"top_p": [1]}, r"top_p is '\[1\]'; it must be a number"),
        ({"top_p": 7}, "top_p is 7.*Or load it with generation_config='vllm'"),
        ({"temperature": -1}, "temperature is -1.*Or load it with generation_config='vllm'"),
    ],
)
def test_advice_that_is_none(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    folder = folder_with(tmp_path, **given)
    with pytest.raises(ModelFileError, match=words):
        default_params(source(read_hf_sampling(folder)), None, "auto")


def test_another_word_than_these_two() -> None:
    with pytest.raises(InvalidRequestError, match="generation_config is 'none'; it must be 'auto'") as error:
        default_params(source({}), None, "none")
    assert error.value.field == "generation_config"


def test_requests_without_parameters_follow_it(smollm2_path: Path) -> None:
    """As vLLM's: those with parameters keep these, whatever they leave out."""
    with LLM("smollm2", max_model_len=128) as llm:
        assert llm.get_default_sampling_params() == SamplingParams(temperature=0.2, top_p=0.9)
        assert llm.stream("Hello")._received.generation.asked.params == SamplingParams(temperature=0.2, top_p=0.9)
        given = SamplingParams(seed=1)
        assert llm.stream("Hello", given)._received.generation.asked.params.temperature == 1
    for model, options in (("smollm2", {"generation_config": "vllm"}), (str(smollm2_path), {})):
        with LLM(model, max_model_len=128, **options) as llm:  # type: ignore[arg-type]
            assert llm.get_default_sampling_params() == SamplingParams()
