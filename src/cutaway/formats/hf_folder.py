"""A Hugging Face folder as a model source: config.json and safetensors under GGUF's names, in GGUF's order.

In: a folder. Out: a ``ModelSource``, the same to the loader as the GGUF of the same model. Tensors stay in their files;
what GGUF has in another order is read in that order.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cutaway.errors import ModelFileError
from cutaway.formats.blocks import BY_NAME, dequantize
from cutaway.formats.cursor import shown
from cutaway.formats.gguf_parts import listed
from cutaway.formats.hf_config import family_of, read_hf_config
from cutaway.formats.hf_families import HEAD, HFFamily
from cutaway.formats.hf_sampling import read_hf_sampling
from cutaway.formats.hf_shards import open_shards
from cutaway.formats.json_file import read_json
from cutaway.formats.source import ModelSource
from cutaway.formats.tensor import Tensor

CONFIG: Final = "config.json"
EMBEDDING: Final = "token_embd.weight"
OUTPUT: Final = "output.weight"
_QUANTISED: Final = (".qweight", ".qzeros", ".g_idx", ".absmax", ".weight_scale", ".weight_scale_inv")


def open_hf_folder(path: str | os.PathLike[str]) -> ModelSource:
    """Read the folder's config and map its weights.

    Raises ``ModelFileError`` for files that are missing or damaged, families that are not known, quantised weights, and
    a head that is neither there nor tied.
    """
    folder = Path(path)
    config = read_json(folder / CONFIG)
    where = folder / CONFIG
    family = family_of(where, config)
    metadata = read_hf_config(where, config, family)
    stored = open_shards(folder)
    if quantised := [shown(name) for name in stored if name.endswith(_QUANTISED)]:
        raise ModelFileError(
            f"{folder}: has quantised weights: {listed(quantised)}; GPTQ, AWQ, bitsandbytes and the like are not "
            "supported. Use a GGUF of the model, or its original in F32, F16 or BF16."
        )
    layers = metadata.get(f"{family.architecture}.block_count", 0)
    if not isinstance(layers, int) or not 0 <= layers <= len(stored):
        raise ModelFileError(
            f"{where}: the number of layers is {layers}; the files have {len(stored)} tensors. Fetch the model again."
        )
    names = _names(family, layers, stored)
    ours_too = set(names.values())
    if taken := [shown(name) for name in stored if name not in names and name in ours_too]:
        raise ModelFileError(
            f"{folder}: {len(taken)} tensors have names that Hugging Face's files don't use: {listed(taken)}. The "
            "files are of another format, or damaged: fetch the model again."
        )
    tensors = {}
    for theirs, tensor in stored.items():
        if theirs not in names:
            tensors[theirs] = tensor  # whoever checks the tensors says that it is not used
        elif (ours := names[theirs]) is not None:
            tensors[ours] = _as_gguf(folder, family, config, replace(tensor, name=ours))
    _settle_head(folder, _is_tied(where, config, family), tensors)
    origins = {ours: theirs for theirs, ours in names.items() if ours is not None}
    origins |= {f"{family.architecture}.{ours}": f"{theirs} in {CONFIG}" for theirs, (ours, _) in family.keys.items()}
    metadata |= read_hf_sampling(folder)
    metadata |= {"general.architecture": family.architecture, "general.name": folder.resolve().name}
    return ModelSource(folder, "safetensors", metadata, tensors, origins)


def _names(family: HFFamily, layers: int, stored: Mapping[str, Tensor]) -> dict[str, str | None]:
    """Hugging Face's name of each tensor that the family may have → GGUF's; None for what is no weight."""
    prefix = family.prefix if any(name.startswith(family.prefix) for name in stored) else ""
    names: dict[str, str | None] = {f"{HEAD}.weight": OUTPUT}
    for theirs, ours in family.tensors.items():
        for l in range(layers) if "{l}" in theirs else (0,):
            for ending in (".weight", ".bias"):
                names[prefix + theirs.format(l=l) + ending] = ours.format(l=l) + ending
    for theirs in family.not_weights:
        names |= {prefix + theirs.format(l=l): None for l in range(layers)}
    return names


def _as_gguf(folder: Path, family: HFFamily, config: Mapping[str, Any], tensor: Tensor) -> Tensor:
    """The tensor as GGUF has it: its rows in that order, its numbers as they enter the computation."""
    matrix = tensor.name.split(".")[-2]
    if family.norms_less_one and matrix.endswith("norm"):
        values = dequantize(tensor.block_type, tensor.stored) + np.float32(1)
        return replace(tensor, block_type=BY_NAME["F32"], stored=values.view(np.uint8), mapping=None)
    if matrix in family.transposed and len(tensor.shape) == 2:
        return replace(tensor, shape=tensor.shape[::-1], transposed=True)
    if matrix in family.permuted and len(tensor.shape) == 2:
        heads = config.get(family.permuted[matrix])
        heads = config.get("num_attention_heads") if heads is None else heads
        rows = tensor.shape[0]
        if type(heads) is not int or heads < 1 or rows < 1 or rows % (2 * heads):
            raise ModelFileError(
                f"{folder}: the tensor {shown(tensor.name)} has {rows} rows; {shown(str(heads))} heads need a "
                "multiple of twice as many. The files don't belong together: fetch the model again."
            )
        halves = np.arange(rows).reshape(heads, 2, rows // heads // 2)
        return replace(tensor, order=halves.swapaxes(1, 2).reshape(-1))
    return tensor


def _is_tied(where: Path, config: Mapping[str, Any], family: HFFamily) -> bool:
    """Whether the head is the embedding."""
    tied = config.get("tie_word_embeddings")
    if tied is not None and type(tied) is not bool:
        raise ModelFileError(
            f"{where}: tie_word_embeddings is {shown(str(tied))}; it must be true or false. The file is damaged: fetch "
            "it again."
        )
    return family.tied if tied is None else tied


def _settle_head(folder: Path, tied: bool, tensors: dict[str, Tensor]) -> None:
    """Where the head is tied to the embedding there is no tensor of its own, as in a GGUF; one that is there all the
    same must be equal.
    """
    embedding, head = tensors.get(EMBEDDING), tensors.get(OUTPUT)
    if embedding is None:
        return
    if not tied and head is None:
        raise ModelFileError(
            f"{folder}: the head ({HEAD}.weight) is missing, and tie_word_embeddings is false, so the embedding is not "
            "meant for it. The files are incomplete: fetch the model again."
        )
    if tied and head is not None:
        same_kind = (head.shape, head.block_type) == (embedding.shape, embedding.block_type)
        if not same_kind or not np.array_equal(head.stored, embedding.stored):
            raise ModelFileError(
                f"{folder}: tie_word_embeddings is true, but {HEAD}.weight differs from the embedding. Set it to false "
                f"in {CONFIG} if the model has a head of its own, or fetch the model again."
            )
        del tensors[OUTPUT]
