"""Opening a model, whatever its files are: a GGUF, one of its parts, or a Hugging Face folder.

In: a path. Out: a ``ModelSource``.
"""

import os
from pathlib import Path

from cutaway.errors import ModelFileError
from cutaway.formats.gguf_parts import open_gguf_parts
from cutaway.formats.hf_folder import CONFIG, open_hf_folder
from cutaway.formats.hf_shards import PICKLES
from cutaway.formats.json_file import read_json
from cutaway.formats.source import ModelSource


def open_model(path: str | os.PathLike[str]) -> ModelSource:
    """The model at ``path``. Raises ``ModelFileError`` for whatever can't be read as one."""
    path = Path(path)
    if path.is_dir():
        return open_hf_folder(path)
    if path.name.endswith(".safetensors") and path.is_file():
        raise ModelFileError(
            f"{path}: has weights only; {CONFIG} beside it says what model they are. Name the folder {path.parent}."
        )
    if path.name.endswith(PICKLES) and path.is_file():
        raise ModelFileError(
            f"{path}: such files can run code when they are opened, so Cutaway never opens them. Convert the model to "
            "safetensors or GGUF."
        )
    if path.name.endswith(".json") and path.is_file() and _is_tokenizer(path):
        raise ModelFileError(f"{path}: a tokenizer has no weights; use cutaway tokenize.")
    return open_gguf_parts(path)


def _is_tokenizer(path: Path) -> bool:
    """Whether a file of JSON has a vocabulary, as ``tokenizer.json`` has."""
    try:
        model = read_json(path).get("model")
    except ModelFileError:
        return path.name == "tokenizer.json"
    return isinstance(model, dict) and "vocab" in model
