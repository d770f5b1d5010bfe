"""The safetensors files of a folder: one file, or shards that an index lists.

In: a folder. Out: the tensors of all files by Hugging Face's names. No file is opened that the folder doesn't hold, and
none that could run code.
"""

from pathlib import Path
from typing import Final

from cutaway.errors import ModelFileError
from cutaway.formats.cursor import shown
from cutaway.formats.gguf_parts import listed
from cutaway.formats.json_file import read_json
from cutaway.formats.safetensors import open_safetensors
from cutaway.formats.tensor import Tensor

ONE_FILE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_AGAIN: Final = "Fetch the model again."


def open_shards(folder: Path) -> dict[str, Tensor]:
    """All tensors. Raises ModelFileError where files are missing, or don't hold what the index says."""
    index, one = folder / INDEX, folder / ONE_FILE
    if not index.exists():
        if not one.exists():
            raise _without_weights(folder)
        return open_safetensors(one)
    files = _files_of(index)
    if one.exists() and ONE_FILE not in set(files.values()):
        raise ModelFileError(
            f"{folder}: there is both {ONE_FILE} and an index that doesn't name it ({INDEX}); one of them is of other "
            "weights. Remove the one that is not meant."
        )
    names = sorted(set(files.values()))
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ModelFileError(
            f"{folder}: {len(missing)} of {len(names)} files are missing: {listed(missing)}. Fetch them again."
        )
    tensors: dict[str, Tensor] = {}
    absent, unlisted, doubled = [], [], []
    for name in names:
        shard = open_safetensors(folder / name)
        absent += [f"{shown(each)} in {name}" for each in files if files[each] == name and each not in shard]
        unlisted += [f"{shown(each)} in {name}" for each in shard if each not in files]
        doubled += [f"{shown(each)} in {name}" for each in shard if files.get(each, name) != name]
        tensors |= shard
    for names, fault in (
        (absent, "that the index names are not there"),
        (doubled, "are in another file than the index says, or in two"),
        (unlisted, "are not in the index"),
    ):
        if names:
            raise ModelFileError(f"{folder}: {len(names)} tensors {fault}: {listed(names)}. {_AGAIN}")
    return tensors


def _files_of(index: Path) -> dict[str, str]:
    """The index: the name of a file for each tensor. Only names of files in the same folder are allowed."""
    files = read_json(index).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise ModelFileError(f"{index}: has no weight_map; it must name a file for each tensor. {_AGAIN}")
    for name in files.values():
        plain = isinstance(name, str) and name.endswith(".safetensors") and not set(name) & set("/\\\0")
        if not plain:
            raise ModelFileError(
                f"{index}: names the file {shown(str(name))}; allowed are names of .safetensors files in the same "
                f"folder. {_AGAIN}"
            )
    return files


def _without_weights(folder: Path) -> ModelFileError:
    """What to say of a folder without safetensors."""
    names = sorted(each.name for each in folder.iterdir())
    if stray := [name for name in names if name.endswith(".safetensors")]:
        return ModelFileError(
            f"{folder}: has {listed(stray)}, but no index ({INDEX}); with several files it says which tensor is where. "
            f"{_AGAIN}"
        )
    if pickles := [name for name in names if name.endswith(PICKLES)]:
        return ModelFileError(
            f"{folder}: has its weights in {listed(pickles)}; such files can run code when they are opened, so Cutaway "
            "never opens them. Convert the model to safetensors or GGUF."
        )
    if ggufs := [name for name in names if name.endswith(".gguf")]:
        return ModelFileError(f"{folder}: has no {ONE_FILE}, but {listed(ggufs)}. Name the file itself.")
    return ModelFileError(f"{folder}: has no {ONE_FILE} and no {INDEX}. {_AGAIN}")
