"""What a model is, in numbers: read from a file's metadata through the description of its family.

In: a model source. Out: a ``ModelConfig``. No value is invented: what the forward needs and neither the file nor its
family says is an error.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

import numpy as np

from cutaway.errors import ModelFileError
from cutaway.formats.blocks import dequantize
from cutaway.formats.cursor import shown
from cutaway.formats.source import ModelSource
from cutaway.model.families import FAMILIES, UNSUPPORTED, Family
from cutaway.model.positions import Rope

LARGEST_SIZE: Final = 1 << 20
"""Of any dimension; rotary angles are exact enough below this many positions (``ops.cpu.math.sine_cosine``)."""

SCALING_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "factor": "factor",
        "original_context_length": "original",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
        "yarn_beta_fast": "beta_fast",
        "yarn_beta_slow": "beta_slow",
        **{name: name for name in ("attention_factor", "mscale", "mscale_all_dim", "truncate")},
    }
)
"""Metadata behind ``rope.scaling.``, and the parameter of a scaling that it is."""
SCALING_NOT_READ: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        "finetuned": (True, False),
        "attn_factor": (1.0,),
        "yarn_attn_factor": (1.0,),
        "yarn_ext_factor": (1.0,),
        "yarn_log_multiplier": (0.0,),
    }
)
"""Other such metadata, and the values with which it changes nothing."""

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class ModelConfig:
    """A model's sizes and constants. Letters are those of the shape table."""

    name: str
    architecture: str
    context_length: int  # the longest context it was trained on
    num_layers: int  # L
    width: int  # D
    num_heads: int  # H
    num_kv_heads: int  # Hkv
    head_dim: int  # Dh
    ffn_width: int  # F
    vocab_size: int  # V
    tensors: tuple[str, ...]  # those that it has, by the shape table's names
    norm_epsilon: float
    layer_norm: bool  # with a centre and a bias; else RMS norm
    activation: str  # "silu" or "gelu"
    gated: bool
    ropes: tuple[Rope, ...]  # G tables of rotary angles
    rope_of_layer: tuple[int, ...]  # [L] which of them, or -1
    rope_interleaved: bool
    windows: tuple[int, ...]  # [L] positions that a layer's tokens attend; 0: all
    attention_scale: float  # of q·k
    attention_cap: float = 0.0  # of its scores, soft; 0: none
    logits_cap: float = 0.0
    embedding_scale: float = 1.0

    @property
    def rotary_dim(self) -> int:
        """R: how many of a head's numbers are turned."""
        return self.ropes[0].width if self.ropes else 0

    def has(self, tensor: str) -> bool:
        """Whether the model may have a tensor of that name in the shape table."""
        return tensor in self.tensors


class _Metadata:
    """Metadata behind the architecture's prefix, with the family's defaults; every number is checked."""

    def __init__(self, source: ModelSource, family: Family) -> None:
        self._source, self._family = source, family
        self._prefix = f"{family.architecture}."

    def has(self, key: str) -> bool:
        """Whether the file, or the family, says it."""
        return self._prefix + key in self._source.metadata or key in self._family.defaults

    def value(self, key: str) -> Any:
        """As it stands, of whatever type; None where it is missing."""
        return self._source.metadata.get(self._prefix + key, self._family.defaults.get(key))

    def is_one_of(self, key: str, values: tuple[Any, ...]) -> bool:
        """Whether the value is a single one, and equal to one of these."""
        value = self.value(key)
        return isinstance(value, bool | int | float | str) and value in values

    def keys(self, prefix: str) -> list[str]:
        """The rest of the keys that begin with a prefix."""
        whole = self._prefix + prefix
        return [key.removeprefix(whole) for key in self._source.metadata if key.startswith(whole)]

    def size(self, key: str, absent: int | None = None, least: int = 1) -> int:
        """An integer from ``least`` to LARGEST_SIZE; ``absent`` where it is missing, if that has a meaning."""
        value = self._typed(key, int, absent)
        if not least <= value <= LARGEST_SIZE:
            raise self.error(key, f"{value}; it must be {least} to {LARGEST_SIZE}. The file is damaged.")
        return value

    def number(self, key: str, absent: float | None = None) -> float:
        """A positive number; ``absent`` where it is missing, if that has a meaning."""
        value = self._typed(key, float, absent)
        if not 0 < value < 1e12 and value != absent:
            raise self.error(key, f"{value}; it must be positive. The file is damaged.")
        return value

    def parameter(self, key: str) -> float:
        """A number of no special kind, or a truth value as 1 or 0."""
        value = self.value(key)
        if not isinstance(value, bool | int | float) or not abs(value) < 1e12:
            raise self.error(key, f"{shown(str(value))}; it must be a number below 1e12. The file is damaged.")
        return float(value)

    def error(self, key: str, problem: str) -> ModelFileError:
        """About the value of a key."""
        return ModelFileError(f"{self._source.path}: {self._prefix}{key} is {problem}")

    def _typed(self, key: str, kind: type[N], absent: N | None) -> N:
        if self._prefix + key not in self._source.metadata:
            default = self._family.defaults.get(key, absent)
            if default is not None:
                return kind(default)
        return self._source.require(self._prefix + key, kind)


def read_config(source: ModelSource) -> ModelConfig:
    """The config of a model. Raises ModelFileError for a family or a variant that the forward doesn't know."""
    architecture = source.require("general.architecture", str)
    family = FAMILIES.get(architecture)
    if family is None:
        raise ModelFileError(
            f"{source.path}: the architecture is {architecture!r}; Cutaway runs {', '.join(sorted(FAMILIES))}. "
            "Use a model of one of these families."
        )
    metadata = _Metadata(source, family)
    for key, (meaning, harmless) in {**UNSUPPORTED, **family.unsupported}.items():
        if metadata.has(key) and not metadata.is_one_of(key, harmless):
            raise metadata.error(
                key,
                f"{metadata.value(key)!r}, {meaning}, which Cutaway does not compute yet. Use a model without it.",
            )
    embedding = source.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelFileError(
            f"{source.path}: the tensor 'token_embd.weight' [V, D] is missing. The file is incomplete; fetch it again."
        )
    layers, width, heads = metadata.size("block_count"), metadata.size("embedding_length"), _heads(metadata)
    head_dim = metadata.size("attention.key_length", absent=max(1, width // heads))
    windows = _windows(metadata, layers)
    try:
        ropes, rope_of_layer = _ropes(source, family, metadata, head_dim, windows)
    except ModelFileError as error:
        raise error if str(source.path) in str(error) else ModelFileError(f"{source.path}: {error}") from error
    by_width = layers in family.scaled_by_width
    config = ModelConfig(
        name=source.get("general.name", str, "") or source.path.stem,
        architecture=architecture,
        context_length=metadata.size("context_length"),
        num_layers=layers,
        width=width,
        num_heads=heads,
        num_kv_heads=metadata.size("attention.head_count_kv", absent=heads),
        head_dim=head_dim,
        ffn_width=metadata.size("feed_forward_length"),
        vocab_size=embedding.shape[0],
        tensors=family.tensors,
        norm_epsilon=metadata.number(f"attention.layer_norm{'' if family.layer_norm else '_rms'}_epsilon"),
        layer_norm=family.layer_norm,
        activation=family.activation,
        gated=family.gated,
        ropes=ropes,
        rope_of_layer=rope_of_layer,
        rope_interleaved=family.rope_interleaved,
        windows=windows,
        attention_scale=metadata.number(
            "attention.scale", absent=1 / math.sqrt(width / heads if by_width else head_dim)
        ),
        attention_cap=metadata.number("attn_logit_softcapping", absent=0.0),
        logits_cap=metadata.number("final_logit_softcapping", absent=0.0),
        embedding_scale=math.sqrt(width) if family.embedding_scaled else 1.0,
    )
    _check(config, source, metadata)
    return config


def _heads(metadata: _Metadata) -> int:
    return metadata.size("attention.head_count")


def _windows(metadata: _Metadata, layers: int) -> tuple[int, ...]:
    """Each layer's window. The pattern says which layers attend one: all but those of a multiple of a number, counted
    from 1, or one truth value a layer. Where there is a pattern, the window must be said.
    """
    patterned = metadata.has("attention.sliding_window_pattern")
    window = metadata.size("attention.sliding_window", absent=None if patterned else 0, least=0)
    pattern = metadata.value("attention.sliding_window_pattern")
    if window == 0:
        return (0,) * layers
    if isinstance(pattern, np.ndarray):
        if pattern.shape != (layers,):
            raise metadata.error(
                "attention.sliding_window_pattern",
                f"{len(pattern)} values for {layers} layers. The file is damaged.",
            )
        return tuple(window if each else 0 for each in pattern.tolist())
    step = metadata.size("attention.sliding_window_pattern", absent=0, least=0)
    return tuple(0 if step and (layer + 1) % step == 0 else window for layer in range(layers))


def _ropes(
    source: ModelSource, family: Family, metadata: _Metadata, head_dim: int, windows: tuple[int, ...]
) -> tuple[tuple[Rope, ...], tuple[int, ...]]:
    """The tables of rotary angles, and which of them turns each layer's heads: where layers with a window have a base
    of their own, that is the second.
    """
    if not family.rotary:
        return (), (-1,) * len(windows)
    width = metadata.size("rope.dimension_count", absent=head_dim)
    scaling, parameters = _scaling(metadata)
    divisors: tuple[float, ...] = ()
    if "rope_freqs.weight" in family.tensors and (tensor := source.tensors.get("rope_freqs.weight")):
        if tensor.shape != (width // 2,) or tensor.block_type.name != "F32":
            raise ModelFileError(
                f"{source.path}: the tensor 'rope_freqs.weight' is {list(tensor.shape)} {tensor.block_type.name}; it "
                f"must be {[width // 2]} F32. The file is damaged."
            )
        divisors = tuple(dequantize(tensor.block_type, tensor.data).tolist())
    ropes = [Rope(metadata.number("rope.freq_base"), width, scaling, parameters, divisors)]
    local = any(windows) and metadata.has("rope.freq_base_swa")
    if local:
        ropes.append(Rope(metadata.number("rope.freq_base_swa"), width))
    of_layer = (
        -1 if family.no_rope_step and (layer + 1) % family.no_rope_step == 0 else int(local and window > 0)
        for layer, window in enumerate(windows)
    )
    return tuple(ropes), tuple(of_layer)


def _scaling(metadata: _Metadata) -> tuple[str, dict[str, float]]:
    """The scaling's type and parameters. A factor without a type is linear, as the GGUF specification has it."""
    for key in metadata.keys("rope.scaling."):
        name = f"rope.scaling.{key}"
        if key not in SCALING_KEYS and key != "type" and not metadata.is_one_of(name, SCALING_NOT_READ.get(key, ())):
            raise metadata.error(
                name,
                f"{metadata.value(name)!r}, a scaling of rotary positions that Cutaway does not compute. Use a model "
                "without it.",
            )
    old_factor = metadata.number("rope.scale_linear", absent=0.0)
    factor = metadata.number("rope.scaling.factor", absent=0.0) or old_factor
    plain = factor in (0.0, 1.0)
    scaling = metadata.value("rope.scaling.type") if metadata.has("rope.scaling.type") else ""
    if not isinstance(scaling, str):
        raise metadata.error("rope.scaling.type", f"{scaling!r}; it must be a name. The file is damaged.")
    scaling = scaling or ("none" if plain else "linear")
    if scaling == "none" or (scaling == "linear" and plain):
        return "none", {}
    parameters = {
        SCALING_KEYS[key]: metadata.parameter(f"rope.scaling.{key}")
        for key in metadata.keys("rope.scaling.")
        if key in SCALING_KEYS
    }
    if factor:
        parameters["factor"] = factor
    length = float(metadata.size("context_length"))
    if scaling == "linear":
        parameters.pop("original", None)
    else:
        parameters.setdefault("original", length)
    if scaling == "dynamic":
        parameters["length"] = length
    return scaling, parameters


def _check(config: ModelConfig, source: ModelSource, metadata: _Metadata) -> None:
    """Refuse sizes that don't fit together or that the kernels don't take."""
    problems = [
        (
            config.num_heads % config.num_kv_heads != 0,
            f"{config.num_heads} heads are no multiple of {config.num_kv_heads} KV heads",
        ),
        (
            config.head_dim % 16 != 0,
            f"the head dimension {config.head_dim} is no multiple of 16, the kernels' vector",
        ),
        (config.width % 32 != 0, f"the width {config.width} is no multiple of 32, the kernels' block"),
        (
            config.ffn_width % 32 != 0,
            f"the feed-forward width {config.ffn_width} is no multiple of 32, the kernels' block",
        ),
        (
            config.num_heads * config.head_dim % 32 != 0,
            "the heads' total width is no multiple of 32, the kernels' block",
        ),
        (
            config.rotary_dim % 2 != 0 or config.rotary_dim > config.head_dim,
            f"rotary positions turn {config.rotary_dim} of a head's {config.head_dim} numbers; they turn pairs",
        ),
        (
            metadata.size("attention.value_length", absent=config.head_dim) != config.head_dim,
            "values have another head dimension than keys",
        ),
    ]
    for broken, text in problems:
        if broken:
            raise ModelFileError(f"{source.path}: {text}. Cutaway can't run this model.")
