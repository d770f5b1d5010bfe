"""A GGUF in parts: ``NAME-00001-of-0000N.gguf`` to ``NAME-0000N-of-0000N.gguf``, which are one model.

In: the path of any part, or of a whole file. Out: one ``ModelSource`` over all parts. The first part has the metadata;
each has tensors, and says its number, the number of parts and that of all tensors (``split.no``, ``split.count``,
``split.tensors.count``; source: llama.cpp, ``gguf-split``).
"""

import os
from pathlib import Path
from typing import Final

from cutaway.errors import ModelFileError
from cutaway.formats.cursor import shown
from cutaway.formats.gguf import GGUFFile, open_gguf
from cutaway.formats.source import ModelSource
from cutaway.formats.tensor import Tensor
from cutaway.hub.split_name import SplitName, split_name

MAX_PARTS: Final = 10_000
SHOWN: Final = 5  # names in a message

_AGAIN = "Fetch the missing ones into the same folder, or all parts again."
_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"


def listed(names: list[str]) -> str:
    """Names for a message: the first few, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def open_gguf_parts(path: str | os.PathLike[str]) -> ModelSource:
    """The whole model of which ``path`` is a file or a part.

    Raises ``ModelFileError`` for parts that are missing, that are of another model, or that have a tensor twice.
    """
    path = Path(path)
    named = split_name(path.name)
    if named and path.exists():
        _check_present(path, named)
    file = open_gguf(path)
    count = file.get(_COUNT, int, 1)
    if count <= 1 and not (named and named.count > 1):
        return file
    if named is not None and named.count != count:
        raise ModelFileError(
            f"{path}: {_COUNT} is {count}; by the file's name it must be {named.count}. The file was renamed "
            "or is damaged: fetch all parts again."
        )
    if named is None:
        raise ModelFileError(
            f"{path}: {_COUNT} is {count}, so it is one of {count} parts; their names must end in -00001-of-{count:05}"
            ".gguf and so on, or the others can't be found. Give the parts their names back."
        )
    parts = [open_gguf(each) for each in _part_paths(path, named)]
    _check_parts(parts, count)
    return ModelSource(path, f"GGUF in {count} parts", parts[0].metadata, _join(parts))


def _part_paths(path: Path, named: SplitName) -> list[Path]:
    return [path.with_name(named.part(number)) for number in range(1, named.count + 1)]


def _check_present(path: Path, named: SplitName) -> None:
    """Every part that the name speaks of is there."""
    number, count = named.number, named.count
    if not 1 <= number <= count <= MAX_PARTS:
        raise ModelFileError(
            f"{path}: its name says that it is part {number} of {count}; parts are numbered from 1 to their number, at "
            f"most {MAX_PARTS}. Give the file its name back."
        )
    missing = [each.name for each in _part_paths(path, named) if not each.exists()]
    if missing:
        raise ModelFileError(f"{path}: {len(missing)} of {count} parts are missing: {listed(missing)}. {_AGAIN}")


def _check_parts(parts: list[GGUFFile], count: int) -> None:
    """The parts say the same of the whole, and belong to one model."""
    for number, part in enumerate(parts):
        for key, expected in ((_NUMBER, number), (_COUNT, count)):
            if part.require(key, int) != expected:
                raise ModelFileError(
                    f"{part.path}: {key} is {part.metadata[key]}; by the file's name it must be {expected}. It is "
                    "a part of another model, or was renamed: fetch it again."
                )
        for key in ("general.architecture", "general.name", _TENSORS):
            first, own = parts[0].metadata.get(key), part.metadata.get(key)
            if own is not None and (not isinstance(own, str | int) or type(own) is not type(first) or own != first):
                raise ModelFileError(
                    f"{part.path}: {key} is {shown(str(own))}, in {parts[0].path.name} {shown(str(first))}. The parts "
                    "are of different models: fetch them again."
                )


def _join(parts: list[GGUFFile]) -> dict[str, Tensor]:
    """The tensors of all parts."""
    tensors: dict[str, Tensor] = {}
    doubled = []
    for part in parts:
        doubled += [shown(name) for name in part.tensors if name in tensors]
        tensors.update(part.tensors)
    where = f"{parts[0].path}: the parts"
    if doubled:
        raise ModelFileError(f"{where} have {len(doubled)} tensors twice: {listed(doubled)}. Fetch them again.")
    promised = parts[0].get(_TENSORS, int, len(tensors))
    if promised != len(tensors):
        raise ModelFileError(f"{where} have {len(tensors)} tensors; {_TENSORS} is {promised}. Fetch them again.")
    return tensors
