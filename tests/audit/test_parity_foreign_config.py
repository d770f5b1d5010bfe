"""Whether transformers reads a model's file as Cutaway does is told by numbers of the model, not by names of keys."""

import json
from pathlib import Path
from typing import Any

import pytest

from cutaway.audit.parity.foreign_config import read_otherwise
from cutaway.formats.open_model import open_model
from cutaway.model.config import ModelConfig, read_config
from support.hf_folders import hf_config, hf_tensors, write_folder
from support.tiny_families import CASES, write_case
from support.tiny_llama import TinySizes, tiny_tensors

SIZES = TinySizes(num_layers=2, width=64, num_heads=4, num_kv_heads=2, head_dim=16, ffn_width=64)


def config_of(path: Path) -> ModelConfig:
    with open_model(path) as source:
        return read_config(source)


def test_what_is_read_alike_is_not_named(tmp_path: Path) -> None:
    folder = write_folder(
        tmp_path / "tiny", hf_config(SIZES, tied=True), hf_tensors(SIZES, tiny_tensors(SIZES, ("BF16",)))
    )
    theirs = json.loads((folder / "config.json").read_text())
    assert read_otherwise(folder, theirs, config_of(folder)) == ()
    assert read_otherwise(folder, {**theirs, "rms_norm_eps": 1e-6}, config_of(folder)) == (
        "norm_epsilon is 1e-06 there, 1e-05 here",
    )


@pytest.mark.parametrize(
    ("case", "theirs", "said"),
    [
        ("llama", {}, []),
        ("mistral", {}, ["windows is (0, 0, 0) there, (29, 29, 29) here"]),
        ("linear scaling", {"quantization_config": {"quant_method": "gguf"}}, ["ropes is (Rope("]),
        ("llama3 scaling", {}, ["ropes is (Rope("]),
        ("llama", {"model_type": "nobody's"}, ["its config can't be read: "]),
    ],
)
def test_what_a_gguf_file_lost_is_named(tmp_path: Path, case: str, theirs: dict[str, Any], said: list[str]) -> None:
    """transformers' config of each of these files is that of a plain llama."""
    path = write_case(tmp_path / "tiny.gguf", case)
    found = read_otherwise(path, {**hf_config(CASES[case].sizes), **theirs}, config_of(path))
    assert len(found) == len(said), found
    assert all(each.startswith(begin) for each, begin in zip(found, said, strict=True)), found
