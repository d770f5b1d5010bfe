"""How a Hugging Face folder's authors would have its tokens chosen: ``generation_config.json`` under GGUF's names.

In: a folder. Out: metadata ``general.sampling.…``, what llama.cpp's converter makes of the same file; empty where there
is no such file, or it says nothing of this. Other keys of the file are not read here.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from cutaway.errors import ModelFileError
from cutaway.formats.cursor import shown
from cutaway.formats.gguf_metadata import MetadataValue
from cutaway.formats.json_file import read_json_if_there

FILE: Final = "generation_config.json"
SAMPLING: Final[Mapping[str, tuple[str, type[int] | type[float]]]] = MappingProxyType(
    {
        "temperature": ("general.sampling.temp", float),
        "top_k": ("general.sampling.top_k", int),
        "top_p": ("general.sampling.top_p", float),
        "min_p": ("general.sampling.min_p", float),
        "repetition_penalty": ("general.sampling.penalty_repeat", float),
    }
)
"""Hugging Face's name, which is vLLM's and ours → GGUF's key, and its type."""


def read_hf_sampling(folder: Path) -> dict[str, MetadataValue]:
    """The metadata. Raises ModelFileError where a value is no number."""
    where = folder / FILE
    given, found = read_json_if_there(where), dict[str, MetadataValue]()
    for theirs, (ours, kind) in SAMPLING.items():
        value = given.get(theirs)
        if value is None:
            continue
        is_number = (type(value) is float and kind is float) or (type(value) is int and abs(value) < 2**31)
        if not is_number:
            what = "an integer of 32 bits" if kind is int else "a number"
            raise ModelFileError(
                f"{where}: {theirs} is {shown(str(value))}; it must be {what}. Correct it, or fetch the file again."
            )
        found[ours] = kind(value)
    return found
