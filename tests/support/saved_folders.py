"""Folders as transformers saves them, of every family: its config.json, weights that are made here and there alike.

In: a case of ``fixtures/hf_folders.json``, which ``oracles/make_hf_fixture.py`` makes. Out: a folder.
"""

import json
from pathlib import Path
from typing import Any

from support.hf_folders import Stored, write_folder
from support.hf_weights import bfloat16_values
from support.weights import as_numbers

SAVED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parents[1] / "fixtures" / "hf_folders.json").read_text())
"""By case, the config and the tensors' names and shapes."""


def saved_folder(path: Path, case: str, type_name: str = "BF16", shards: int = 1) -> Path:
    """The model of a case, its weights as numbers of a type."""
    saved = SAVED[case]
    stored: Stored = {}
    for name, shape in saved["shapes"].items():
        values = bfloat16_values(name, tuple(shape), saved["config"]["model_type"])
        stored[name] = (as_numbers(type_name, values), type_name, shape)
    return write_folder(path, saved["config"], stored, shards)
