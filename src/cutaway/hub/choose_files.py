"""Which files of a repository or folder are the model.

In: file names and sizes, and what is wanted: a quantisation, a file, or nothing. Out: the files of one model, or an
error that lists what there is. Only GGUF, safetensors, JSON and tokenizer files are ever chosen: pickles run code.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.hub.split_name import split_name

DEFAULT_QUANTISATION = "Q4_K_M"
"""Taken of several where none is wanted: small, and hardly worse than the original."""

# What is needed of a model in Hugging Face's layout, beside its weights.
CONFIG = "config.json"
SHARD_INDEX = "model.safetensors.index.json"
VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json")
_COMPANIONS = (
    CONFIG,
    SHARD_INDEX,
    *VOCABULARIES,
    "merges.txt",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)
_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")

_QUANTISATION = re.compile(r"(?<![A-Za-z0-9])((?:I?Q|TQ)[1-8]_[A-Z0-9_]+|B?F16|F32)(?![A-Za-z0-9])", re.IGNORECASE)
_NO_MODELS = ("*mmproj*", "*imatrix*")  # GGUF files that hold something else: projectors, statistics
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_SHOWN = 20


@dataclass(frozen=True)
class ModelFiles:
    """The files of one model, in order. ``first`` is the file that is opened, None where the whole folder is."""

    names: tuple[str, ...]
    first: str | None


def choose_files(sizes: Mapping[str, int], wanted: str | None, where: str, *, is_folder: bool = False) -> ModelFiles:
    """The model's files among those of a repository or folder.

    With nothing wanted: the folder itself if it is a model in Hugging Face's layout; else the only GGUF model, or the
    one in ``DEFAULT_QUANTISATION``.

    Args:
        sizes: name → bytes; names of files in folders have slashes.
        wanted: a quantisation or other part of a file's name, whole words in any case; or a file's whole name.
        where: what the error messages call the place: a repository's name or a folder's path.
        is_folder: of this machine, whose files are named by their paths.

    Raises:
        ModelFileError: there is no model, or parts of it are missing.
        InvalidRequestError: several fit, or none fits what is wanted.
    """
    if wanted is None and (names := hugging_face_files(sizes)):
        return ModelFiles(names, None)
    models = gguf_models(sizes)
    place = f"the folder {where}" if is_folder else where
    if not models:
        raise ModelFileError(f"{place} has no GGUF model. {_what_else(sizes)}")
    fitting = _fitting(models, wanted)
    if len(fitting) != 1:
        asked = "" if is_folder else f", {len(fitting) or 'none'} of {wanted or DEFAULT_QUANTISATION}"
        first = next(iter(fitting or models))
        example = f"{where}/{models[first][0]}" if is_folder else f"{where}:{selector(first, models)}"
        raise InvalidRequestError(
            f"{place} has {len(models)} GGUF models{asked}: {_listed(models, sizes)}; name one, as in {example}",
            field="model",
        )
    parts = models[fitting[0]]
    check_parts(parts, place)
    return ModelFiles(parts, parts[0])


def gguf_models(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The GGUF models by name, each with its files: one, or the parts of a split one in order."""
    models: dict[str, list[str]] = {}
    for name in sorted(names):
        if name.lower().endswith(".gguf") and not any(fnmatchcase(name.lower(), each) for each in _NO_MODELS):
            part = split_name(name)
            models.setdefault(part.whole if part else name, []).append(name)
    return {name: tuple(files) for name, files in models.items()}


def check_parts(files: tuple[str, ...], where: str) -> None:
    """Raises ModelFileError where parts of a split model are missing."""
    parts = [part for part in map(split_name, files) if part]
    if not parts:
        return
    counts = {part.count for part in parts}
    numbers = [part.number for part in parts]
    if len(parts) != len(files) or len(counts) != 1 or numbers != list(range(1, counts.pop() + 1)):
        raise ModelFileError(
            f"{where} has {', '.join(files[:_SHOWN])}; of a split model all parts are needed, each once. Get the "
            "others."
        )


def hugging_face_files(names: Iterable[str]) -> tuple[str, ...]:
    """What is needed of a model in Hugging Face's layout; nothing where config or weights are missing."""
    present = set(names)
    weights = sorted(name for name in present if _WEIGHTS.fullmatch(name))
    if CONFIG not in present or not weights:
        return ()
    return (*(name for name in _COMPANIONS if name in present), *weights)


def selector(model: str, models: Iterable[str]) -> str:
    """The shortest text that selects this one of the models: its quantisation if no other has it, else its name."""
    found = _QUANTISATION.findall(model.rpartition("/")[2]) or _QUANTISATION.findall(model)
    if found and _fitting(dict.fromkeys(models, ()), found[-1]) == [model]:
        return str(found[-1])
    return model


def _fitting(models: Mapping[str, tuple[str, ...]], wanted: str | None) -> list[str]:
    if wanted is None:
        return list(models) if len(models) == 1 else _fitting(models, DEFAULT_QUANTISATION)
    whole = [name for name, files in models.items() if wanted == name or wanted in files]
    # "Q4_K" is no part of "Q4_K_M", but of "UD-Q4_K"
    words = re.compile(rf"(?<![A-Za-z0-9]){re.escape(wanted)}(?![A-Za-z0-9_])", re.IGNORECASE)
    return whole or [name for name in models if words.search(name)]


def _listed(models: Mapping[str, tuple[str, ...]], sizes: Mapping[str, int]) -> str:
    def one(name: str, files: tuple[str, ...]) -> str:
        parts = f", {len(files)} parts" if len(files) > 1 else ""
        return f"{name} ({sum(sizes[file] for file in files) / 1e9:.2f} GB{parts})"

    listed = [one(name, files) for name, files in list(models.items())[:_SHOWN]]
    return ", ".join(listed) + (f" and {len(models) - _SHOWN} more" if len(models) > _SHOWN else "")


def _what_else(names: Iterable[str]) -> str:
    """What there is in place of a model, and why it isn't taken."""
    present = sorted(names)
    if any(fnmatchcase(name, each) for name in present for each in _PICKLES):
        reason = "Weights in pickle files (.bin, .pt) can run code and are never opened"
    elif any(name.endswith(".safetensors") for name in present):
        reason = f"The safetensors lack a {CONFIG} or the names model*.safetensors"
    else:
        reason = "Name a place with a .gguf file, or with config.json and model.safetensors"
    shown = ", ".join(present[:_SHOWN]) + (f" and {len(present) - _SHOWN} more" if len(present) > _SHOWN else "")
    return f"{reason}. It has: {shown or 'nothing'}."
