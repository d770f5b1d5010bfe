"""What a model is, in numbers: read from a file's metadata through the description of its family.

In: a GGUF's metadata. Out: a ``ModelConfig``. No value is invented: what the forward needs and the file lacks is an
error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from cutaway.errors import ModelFileError
from cutaway.formats.gguf import GGUFFile

LARGEST_SIZE: Final = 1 << 20
"""Of any dimension; rotary angles are exact enough below this many positions (``ops.cpu.math.sine_cosine``)."""


@dataclass(frozen=True)
class Family:
    """What its files don't say about a family of models."""

    architecture: str  # general.architecture
    rope_interleaved: bool  # GGUF stores llama's Q and K rows permuted for interleaved pairs
    biased: tuple[str, ...]  # the matrices of a layer that have a bias, by their names in the file
    unsupported: Mapping[str, str]
    """Metadata keys (behind the architecture's prefix) that change the computation, and what they are."""


NO_CHANGE: Final[Mapping[str, tuple[object, ...]]] = MappingProxyType(
    {
        "expert_count": (0,),
        "rope.scaling.type": ("none",),
        "rope.scaling.factor": (0.0, 1.0),
        "rope.scale_linear": (0.0, 1.0),
        "attention.sliding_window": (0,),
    }
)
"""Values with which such a key changes nothing."""

UNSUPPORTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "expert_count": "a mixture of experts",
        "rope.scaling.type": "scaled rotary positions",
        "rope.scaling.factor": "scaled rotary positions",
        "rope.scale_linear": "scaled rotary positions",
        "attention.sliding_window": "a sliding window",
    }
)
"""What no family's forward computes yet."""

FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        family.architecture: family
        for family in (
            Family(architecture="llama", rope_interleaved=True, biased=(), unsupported=UNSUPPORTED),
            Family(
                architecture="qwen2",
                rope_interleaved=False,
                biased=("attn_q", "attn_k", "attn_v"),
                unsupported=UNSUPPORTED,
            ),
        )
    }
)


@dataclass(frozen=True)
class ModelConfig:
    """A model's sizes and constants. Letters are those of the shape table."""

    name: str
    architecture: str
    context_length: int  # C, the longest context it was trained on
    num_layers: int  # L
    width: int  # D
    num_heads: int  # H
    num_kv_heads: int  # Hkv
    head_dim: int  # Dh
    ffn_width: int  # F
    vocab_size: int  # V
    rope_base: float
    rope_interleaved: bool
    norm_epsilon: float
    biased: tuple[str, ...] = ()  # matrices of a layer that have a bias


def read_config(gguf: GGUFFile) -> ModelConfig:
    """The config of a GGUF file. Raises ModelFileError for a family or a variant that the forward doesn't know."""
    architecture = gguf.require("general.architecture", str)
    family = FAMILIES.get(architecture)
    if family is None:
        raise ModelFileError(
            f"{gguf.path}: the architecture is {architecture!r}; Cutaway runs {', '.join(sorted(FAMILIES))}. "
            "Use a model of one of these families."
        )
    for key, meaning in family.unsupported.items():
        value = gguf.metadata.get(f"{architecture}.{key}")
        absent = value is None or (isinstance(value, int | float | str) and value in NO_CHANGE[key])
        if not absent:
            raise ModelFileError(
                f"{gguf.path}: {architecture}.{key} is {value!r}, {meaning}, which Cutaway does not compute yet. "
                "Use a model without it."
            )

    def size(key: str) -> int:
        value = gguf.require(f"{architecture}.{key}", int)
        if not 1 <= value <= LARGEST_SIZE:
            raise ModelFileError(
                f"{gguf.path}: {architecture}.{key} is {value}; it must be 1 to {LARGEST_SIZE}. The file is damaged."
            )
        return value

    def number(key: str) -> float:
        value = gguf.require(f"{architecture}.{key}", float)
        if not 0 < value < 1e12:
            raise ModelFileError(
                f"{gguf.path}: {architecture}.{key} is {value}; it must be positive. The file is damaged."
            )
        return value

    embedding = gguf.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelFileError(
            f"{gguf.path}: the tensor 'token_embd.weight' [V, D] is missing. The file is incomplete; fetch it again."
        )
    width, heads = size("embedding_length"), size("attention.head_count")
    kv_heads = size("attention.head_count_kv") if f"{architecture}.attention.head_count_kv" in gguf.metadata else heads
    has_key_length = f"{architecture}.attention.key_length" in gguf.metadata
    head_dim = size("attention.key_length") if has_key_length else width // heads
    config = ModelConfig(
        name=gguf.get("general.name", str, "") or gguf.path.stem,
        architecture=architecture,
        context_length=size("context_length"),
        num_layers=size("block_count"),
        width=width,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        ffn_width=size("feed_forward_length"),
        vocab_size=embedding.shape[0],
        rope_base=number("rope.freq_base"),
        rope_interleaved=family.rope_interleaved,
        norm_epsilon=number("attention.layer_norm_rms_epsilon"),
        biased=family.biased,
    )
    _check(config, gguf)
    return config


def _check(config: ModelConfig, gguf: GGUFFile) -> None:
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
            gguf.get(f"{config.architecture}.rope.dimension_count", int, config.head_dim) != config.head_dim,
            "rotary positions cover only a part of each head",
        ),
        (
            gguf.get(f"{config.architecture}.attention.value_length", int, config.head_dim) != config.head_dim,
            "values have another head dimension than keys",
        ),
    ]
    for broken, text in problems:
        if broken:
            raise ModelFileError(f"{gguf.path}: {text}. Cutaway can't run this model.")
