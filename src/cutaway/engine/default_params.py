"""The sampling parameters that a model's authors advise, for requests that say nothing of them.

In: what a model's files say (``general.sampling.…`` of a GGUF, ``generation_config.json`` of a folder), else its entry
of the catalogue. Out: names and values of ``SamplingParams``.
Source: vLLM, ``generation_config="auto"``, which uses the same five.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.formats.hf_sampling import SAMPLING
from cutaway.formats.source import ModelSource
from cutaway.hub.catalogue import CatalogueEntry, HubAlias
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.params_checks import shown

GENERATION_CONFIGS: Final = ("auto", "vllm")


def default_params(
    source: ModelSource, entry: CatalogueEntry | HubAlias | None, generation_config: str
) -> Mapping[str, float]:
    """What to use where a request says nothing; empty where nothing is advised. generation_config: "auto", or "vllm"
    for nothing in any case.

    Raises:
        InvalidRequestError: generation_config is neither.
        ModelFileError: the files advise what no request may ask for.
    """
    if generation_config not in GENERATION_CONFIGS:
        raise InvalidRequestError(
            f"generation_config is {shown(generation_config)}; it must be 'auto', for what the model's authors advise, "
            "or 'vllm', for SamplingParams' own defaults.",
            "generation_config",
        )
    if generation_config == "vllm":
        return MappingProxyType({})
    found: dict[str, float] = {}
    for name, (key, kind) in SAMPLING.items():
        value = source.get(key, kind, None)
        if value is not None:
            # A GGUF has them in float32: the decimal number that was meant is the shortest that is the same there.
            with np.errstate(over="ignore"):  # what is too large is refused below
                found[name] = float(str(np.float32(value))) if kind is float else value
    if not found:
        return MappingProxyType(dict(entry.sampling if entry else ()))
    try:
        SamplingParams(**found)  # type: ignore[arg-type]  # the names are those of numbers
    except InvalidRequestError as error:
        raise ModelFileError(
            f"{source.path}: the sampling parameters that it advises can't be used: {error} Or load it with "
            "generation_config='vllm' (--generation-config vllm), which leaves them unread."
        ) from None
    return MappingProxyType(found)
