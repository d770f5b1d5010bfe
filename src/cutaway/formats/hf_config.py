"""A Hugging Face ``config.json`` in GGUF's terms.

In: the config as a dictionary, its family. Out: metadata under GGUF's keys. Nothing is dropped that could change the
computation: what has no key there keeps its own name, and whoever reads the metadata refuses it.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from cutaway.errors import ModelFileError
from cutaway.formats.cursor import shown
from cutaway.formats.gguf_metadata import MetadataValue
from cutaway.formats.hf_families import AS_GGUF, HF_FAMILIES, HFFamily

_SCALING_KEYS: Final = {
    "original_max_position_embeddings": "original_context_length",
    "beta_fast": "yarn_beta_fast",
    "beta_slow": "yarn_beta_slow",
}
"""What GGUF calls parameters of scaled rotary positions, where the names differ."""
_NOT_SCALING: Final = ("rope_type", "type", "rope_theta", "partial_rotary_factor")
_CAPS: Final = ("attn_logit_softcapping", "final_logit_softcapping")
_WINDOWED: Final = {"sliding_attention": True, "full_attention": False}
"""Kinds of layers in ``layer_types``: whether they attend a window."""
_NULL_IS_NONE: Final = ("sliding_window",)
"""Keys of which null means none of it; of others it means the model class's own value, as if they were left out."""
_PATTERNS: Final = ("sliding_window_pattern", "_sliding_window_pattern")
"""Names of the number of layers of which the last attends all."""


def family_of(where: object, config: Mapping[str, Any]) -> HFFamily:
    """The family. Raises ModelFileError for one that is not known, and for quantised weights."""
    model_type = config.get("model_type")
    family = HF_FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        as_gguf = ", or a GGUF of this one" if model_type in AS_GGUF else ""
        raise ModelFileError(
            f"{where}: model_type is {shown(str(model_type))}; Cutaway reads {', '.join(sorted(HF_FAMILIES))}. "
            f"Use a model of one of these families{as_gguf}."
        )
    quantised = config.get("quantization_config")
    if quantised:
        method = quantised.get("quant_method") if isinstance(quantised, dict) else quantised
        raise ModelFileError(
            f"{where}: the weights are quantised by {shown(str(method))} (quantization_config); GPTQ, AWQ, "
            "bitsandbytes and the like are not supported. Use a GGUF of the model, or its original in F32, F16 or BF16."
        )
    for key, allowed in family.fixed.items():
        if config.get(key) is not None and config[key] not in allowed:
            raise ModelFileError(
                f"{where}: {key} is {shown(str(config[key]))}; Cutaway computes {model_type} with "
                f"{' or '.join(map(str, allowed))}. Use a model without it."
            )
    return family


def read_hf_config(where: object, config: Mapping[str, Any], family: HFFamily) -> dict[str, MetadataValue]:
    """The metadata. Raises ModelFileError for a value of the wrong type."""
    absent = {
        key: value
        for key, value in family.defaults.items()
        if key not in config or (config[key] is None and key not in _NULL_IS_NONE)
    }
    values = _flat(where, {**config, **absent})
    metadata: dict[str, MetadataValue] = {}
    for key, (ours, kind) in family.keys.items():
        if values.get(key) is not None:
            metadata[ours] = _typed(where, key, values[key], kind)
    if "attention.key_length" in metadata:
        metadata["attention.value_length"] = metadata["attention.key_length"]
    if values.get("query_pre_attn_scalar"):
        scalar: float = _typed(where, "query_pre_attn_scalar", values["query_pre_attn_scalar"], float)
        metadata["attention.scale"] = 1 / math.sqrt(scalar) if scalar > 0 else scalar
    pattern = _window_pattern(where, values)
    if values.get("use_sliding_window") is False:
        metadata.pop("attention.sliding_window", None)
    elif "attention.sliding_window" in metadata and pattern is not None:
        metadata["attention.sliding_window_pattern"] = pattern
    if "no_rope_layer_interval" in family.fixed:
        _check_layers_without_rope(where, values, *family.fixed["no_rope_layer_interval"])
    if family.architecture == "gpt2" and values.get("n_inner") is None and "embedding_length" in metadata:
        metadata["feed_forward_length"] = 4 * _typed(where, "n_embd", values["n_embd"], int)
    metadata.update(_rope(where, values, metadata, family))
    return {f"{family.architecture}.{key}": value for key, value in metadata.items()}


def _window_pattern(where: object, values: Mapping[str, Any]) -> MetadataValue | None:
    """Which layers attend a window: a truth value for each, or the number of layers of which the last attends all."""
    layers = values.get("layer_types")
    if layers is not None:
        if not isinstance(layers, list) or any(not isinstance(each, str) or each not in _WINDOWED for each in layers):
            raise ModelFileError(
                f"{where}: layer_types is {shown(str(layers))}; Cutaway computes layers of the kinds "
                f"{', '.join(_WINDOWED)}. Use a model of these."
            )
        return np.array([_WINDOWED[each] for each in layers])
    for key in _PATTERNS:
        if values.get(key) is not None:
            number: int = _typed(where, key, values[key], int)
            return number
    return None


def _check_layers_without_rope(where: object, values: Mapping[str, Any], step: int) -> None:
    """``no_rope_layers`` (0: a layer without rotary positions) says what the forward does: each ``step``-th layer."""
    layers = values.get("no_rope_layers")
    if layers and (not isinstance(layers, list) or layers != [int(i % step != 0) for i in range(1, len(layers) + 1)]):
        raise ModelFileError(
            f"{where}: no_rope_layers is {shown(str(layers))}; Cutaway computes models in which every {step}th layer, "
            "and no other, has no rotary positions. Use a model without it."
        )


def _flat(where: object, config: dict[str, Any]) -> dict[str, Any]:
    """The config with the rotary positions' parameters in one dictionary, ``rope``, however old it is.

    They were ``rope_theta`` and ``rope_scaling`` first, then ``rope_parameters``; models whose layers with a window
    have parameters of their own had ``rope_local_base_freq`` first, then a dictionary for each kind of layer.
    """
    rope: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        given = config.get(key) or {}
        if not isinstance(given, dict):
            raise ModelFileError(f"{where}: {key} is {shown(str(given))}; it must be an object. The file is damaged.")
        rope |= given
    local = rope.pop("sliding_attention", None)
    full = rope.pop("full_attention", None)
    if isinstance(full, dict):
        rope |= full
    if isinstance(local, dict):
        if local.get("rope_type", "default") != "default":
            raise ModelFileError(
                f"{where}: rope_parameters.sliding_attention is {shown(str(local))}; Cutaway does not compute scaled "
                "rotary positions of layers with a window. Use a model without them."
            )
        config["rope_local_base_freq"] = local.get("rope_theta", config.get("rope_local_base_freq"))
    config["rope_theta"] = rope.get("rope_theta", config.get("rope_theta"))
    for key in _CAPS:
        if key in config and config[key] is None:
            config[key] = 0.0
    if "partial_rotary_factor" in config:
        rope.setdefault("partial_rotary_factor", config["partial_rotary_factor"])
    return {**config, "rope": rope}


def _rope(
    where: object, values: Mapping[str, Any], metadata: Mapping[str, MetadataValue], family: HFFamily
) -> dict[str, MetadataValue]:
    """Scaled and partial rotary positions."""
    rope: Mapping[str, Any] = values["rope"]
    found: dict[str, MetadataValue] = {}
    part = rope.get("partial_rotary_factor")
    if part is not None and part != 1 and not family.partial_rotary:
        raise ModelFileError(
            f"{where}: partial_rotary_factor is {shown(str(part))}; in models of the type {family.model_type} rotary "
            "positions turn whole heads. Use a model without it."
        )
    if part is not None and part != 1 and "attention.head_count" in metadata:
        heads = _typed(where, "num_attention_heads", values["num_attention_heads"], int)
        width = values.get("head_dim") or _typed(where, "hidden_size", values.get("hidden_size"), int) // max(1, heads)
        share: float = _typed(where, "partial_rotary_factor", part, float)
        if not 0 < share <= 1:
            raise ModelFileError(
                f"{where}: partial_rotary_factor is {share}; it must be above 0 and at most 1. The file is damaged: "
                "fetch it again."
            )
        found["rope.dimension_count"] = int(width * share)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in ("default", None):
        return found
    found["rope.scaling.type"] = _typed(where, "rope_type", kind, str)
    for key, value in rope.items():
        if isinstance(value, list | dict):
            raise ModelFileError(
                f"{where}: {key} of rotary positions of the type {shown(kind)} is a list; Cutaway does not compute "
                "such positions. Use a model without them."
            )
        if key not in _NOT_SCALING and value is not None:
            whole = key == "original_max_position_embeddings" or isinstance(value, str | bool)
            number: MetadataValue = _typed(where, key, value, type(value) if whole else float)
            found[f"rope.scaling.{_SCALING_KEYS.get(key, key)}"] = number
    return found


def _typed(where: object, key: str, value: Any, kind: type) -> Any:
    """The value, when it is of this type; a whole number is also a float."""
    if kind is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            pass
    if type(value) is not kind or (isinstance(value, int) and abs(value) >= 1 << 63):
        raise ModelFileError(
            f"{where}: {key} is {shown(str(value))}; it must be {kind.__name__}. The file is damaged: fetch it again."
        )
    return value
