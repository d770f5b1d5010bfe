"""Where transformers reads a model's file otherwise: it then computes another model, and rightly something else.

In: the config that it made, as it writes config.json; ours. Out: what differs, a sentence each. Of GGUF files it leaves
out much: windows, caps, scaled rotary positions. Folders of safetensors it reads as they are.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from cutaway.errors import ModelFileError
from cutaway.formats.hf_config import family_of, read_hf_config
from cutaway.formats.open_model import open_model
from cutaway.formats.source import ModelSource
from cutaway.model.config import ModelConfig, read_config

DIVISORS: Final = "rope_freqs.weight"
NOT_COMPUTED: Final = ("name", "architecture", "context_length", "tensors", "rope_interleaved", "vocab_size")
"""Fields that change no number, or say how the file lies."""
LONGEST: Final = 120  # characters of a value


def read_otherwise(path: Path, theirs: Mapping[str, Any], ours: ModelConfig) -> tuple[str, ...]:
    """Each number of the model that transformers has and Cutaway hasn't, or the reason why that can't be told."""
    try:
        plain = {**theirs, "quantization_config": None}  # how GGUF's blocks were read; they are numbers by now
        family = family_of(path, plain)
        metadata = {**read_hf_config(path, plain, family), "general.architecture": family.architecture}
        with open_model(path) as source:
            tensors = {name: tensor for name, tensor in source.tensors.items() if name != DIVISORS}
            config = read_config(ModelSource(path, source.format, metadata, tensors))
    except ModelFileError as error:
        return (f"its config can't be read: {error}",)
    return tuple(
        f"{each.name} is {_shown(there)} there, {_shown(here)} here"
        for each in fields(ModelConfig)
        if each.name not in NOT_COMPUTED
        and not _same(there := getattr(config, each.name), here := getattr(ours, each.name))
    )


def _same(there: Any, here: Any) -> bool:
    """Files have numbers in float32, config.json has them in decimals."""
    if isinstance(there, float) and isinstance(here, float):
        return abs(there - here) <= 1e-6 * abs(here)
    return bool(there == here)


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
